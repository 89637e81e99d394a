#include "lib/text/jinja/parser.h"

#include <fmt/format.h>

#include <initializer_list>

#include "lib/text/jinja/expression_parser.h"

namespace vlmtune::jinja {
namespace {

using Kind = Statement::Kind;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_) {}

  Block run() {
    Block block = parse_block({});
    return block;
  }

 private:
  /// Statements up to one of the closing tags, whose name is then in `closed_by_` and which is read up to its name.
  Block parse_block(std::initializer_list<std::string_view> closing) {
    DepthGuard guard(tokens_);
    Block block;
    while (true) {
      const auto& token = tokens_.peek();
      if (token.kind == Token::Kind::kEnd) {
        if (closing.size() == 0) return block;
        tokens_.fail(fmt::format("the template ends before {{% {} %}}", *(closing.end() - 1)));
      }
      if (token.kind == Token::Kind::kData) {
        auto statement = make(Kind::kData);
        statement.text = tokens_.take().text;
        block.push_back(std::move(statement));
      } else if (token.kind == Token::Kind::kOutputBegin) {
        tokens_.take();
        auto statement = make(Kind::kOutput);
        statement.value = expressions_.parse_with_tuple();
        tokens_.expect(Token::Kind::kOutputEnd, "}}");
        block.push_back(std::move(statement));
      } else {
        tokens_.take();  // {%
        auto name = tokens_.expect_name();
        for (auto end : closing) {
          if (name == end) {
            closed_by_ = name;
            return block;
          }
        }
        parse_statement(name, block);
      }
    }
  }

  Statement make(Kind kind) const {
    Statement statement{};
    statement.kind = kind;
    statement.line = tokens_.peek().line;
    return statement;
  }

  void end_tag() { tokens_.expect(Token::Kind::kBlockEnd, "%}"); }

  void parse_statement(const std::string& name, Block& block) {
    if (name == "if")
      block.push_back(parse_if());
    else if (name == "for")
      block.push_back(parse_for());
    else if (name == "set")
      block.push_back(parse_set());
    else if (name == "macro")
      block.push_back(parse_macro());
    else if (name == "filter")
      block.push_back(parse_filter());
    else if (name == "generation")
      block.push_back(parse_generation());
    else if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) tokens_.fail(fmt::format("{{% {} %}} outside a loop", name));
      block.push_back(make(name == "break" ? Kind::kBreak : Kind::kContinue));
      end_tag();
    } else {
      tokens_.fail(fmt::format("unknown or misplaced tag {{% {} %}}", name));
    }
  }

  Statement parse_if() {
    auto statement = make(Kind::kIf);
    statement.value = expressions_.parse_with_tuple();
    end_tag();
    statement.body = parse_block({"elif", "else", "endif"});
    if (closed_by_ == "elif") {
      DepthGuard guard(tokens_);
      statement.otherwise.push_back(parse_if());
      return statement;
    }
    if (closed_by_ == "else") {
      end_tag();
      statement.otherwise = parse_block({"endif"});
    }
    end_tag();
    return statement;
  }

  Statement parse_for() {
    auto statement = make(Kind::kFor);
    statement.target.names = parse_names();
    if (!tokens_.take_name("in")) tokens_.fail("expected \"in\" in {% for %}");
    statement.value = expressions_.parse_with_tuple(false);
    if (tokens_.take_name("if")) statement.filter = expressions_.parse();
    if (tokens_.take_name("recursive")) tokens_.fail("recursive loops are not supported");
    end_tag();
    ++loop_depth_;
    statement.body = parse_block({"else", "endfor"});
    --loop_depth_;
    if (closed_by_ == "else") {
      end_tag();
      statement.otherwise = parse_block({"endfor"});
    }
    end_tag();
    return statement;
  }

  std::vector<std::string> parse_names() {
    std::vector<std::string> names;
    bool bracketed = tokens_.take_operator("(");
    do names.push_back(tokens_.expect_name());
    while (tokens_.take_operator(","));
    if (bracketed && !tokens_.take_operator(")")) tokens_.fail("expected \")\"");
    return names;
  }

  Statement parse_set() {
    auto statement = make(Kind::kSet);
    statement.target.names = parse_names();
    if (tokens_.take_operator(".")) statement.target.attribute = tokens_.expect_name();
    if (tokens_.take_operator("=")) {
      statement.value = expressions_.parse_with_tuple();
      end_tag();
      return statement;
    }
    statement.kind = Kind::kSetBlock;
    if (tokens_.peek_operator("|")) statement.value = expressions_.parse_filters(nullptr);
    end_tag();
    statement.body = parse_block({"endset"});
    end_tag();
    return statement;
  }

  Statement parse_macro() {
    auto statement = make(Kind::kMacro);
    statement.text = tokens_.expect_name();
    if (!tokens_.take_operator("(")) tokens_.fail("expected \"(\" behind the name of a macro");
    while (!tokens_.take_operator(")")) {
      auto name = tokens_.expect_name();
      ExpressionPtr fallback;
      if (tokens_.take_operator("=")) fallback = expressions_.parse();
      statement.parameters.emplace_back(name, std::move(fallback));
      if (!tokens_.take_operator(",") && !tokens_.peek_operator(")")) tokens_.fail("expected \",\" or \")\"");
    }
    end_tag();
    int outer_loops = std::exchange(loop_depth_, 0);
    statement.body = parse_block({"endmacro"});
    loop_depth_ = outer_loops;
    if (tokens_.peek().kind == Token::Kind::kName) tokens_.take();
    end_tag();
    return statement;
  }

  Statement parse_filter() {
    auto statement = make(Kind::kFilterBlock);
    statement.value = expressions_.parse_filters(nullptr, true);
    end_tag();
    statement.body = parse_block({"endfilter"});
    end_tag();
    return statement;
  }

  Statement parse_generation() {
    auto statement = make(Kind::kGeneration);
    end_tag();
    statement.body = parse_block({"endgeneration"});
    end_tag();
    return statement;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  std::string closed_by_;
  int loop_depth_ = 0;
};

}  // namespace

Block parse(std::string_view source) { return Parser(source).run(); }

}  // namespace vlmtune::jinja
