#include "lib/text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace vlmtune::jinja {
namespace {

using Kind = Expression::Kind;
constexpr int kMaxDepth = 60;
constexpr size_t kMaxChain = 100;  // operators of one level in a row: they make a left-leaning tree as deep

}  // namespace

std::string TokenStream::expect_name() {
  if (peek().kind != Token::Kind::kName) fail("expected a name");
  return take().text;
}

void TokenStream::expect(Token::Kind kind, const char* text) {
  if (peek().kind != kind)
    fail(peek().text.empty() ? fmt::format("expected {}", text)
                             : fmt::format("expected {}, found \"{}\"", text, peek().text));
  take();
}

DepthGuard::DepthGuard(TokenStream& tokens) : tokens_(tokens) {
  if (tokens.depth_ >= kMaxDepth) tokens.fail(fmt::format("nested deeper than {} levels", kMaxDepth));
  ++tokens.depth_;
}

ExpressionPtr ExpressionParser::make(Kind kind, std::string name) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = tokens_.peek().line;
  expression->name = std::move(name);
  return expression;
}

ExpressionPtr ExpressionParser::make(Kind kind, std::string name, ExpressionPtr first, ExpressionPtr second) const {
  auto expression = make(kind, std::move(name));
  expression->operands.push_back(std::move(first));
  if (second) expression->operands.push_back(std::move(second));
  return expression;
}

ExpressionPtr ExpressionParser::parse(bool with_condition) { return with_condition ? parse_condition() : parse_or(); }

ExpressionPtr ExpressionParser::parse_with_tuple(bool with_condition) {
  auto first = parse(with_condition);
  if (!tokens_.peek_operator(",")) return first;
  auto tuple = make(Kind::kTuple, "", std::move(first));
  while (tokens_.take_operator(",")) {
    auto kind = tokens_.peek().kind;
    if (kind == Token::Kind::kBlockEnd || kind == Token::Kind::kOutputEnd) break;
    tuple->operands.push_back(parse(with_condition));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_condition() {
  DepthGuard guard(tokens_);
  auto result = parse_or();
  for (size_t n = 0; tokens_.take_name("if"); ++n) {
    if (n > 50) tokens_.fail("too many conditions in a row");
    auto condition = parse_or();
    auto whole = make(Kind::kCondition, "", std::move(result), std::move(condition));
    whole->operands.push_back(tokens_.take_name("else") ? parse_condition() : nullptr);
    result = std::move(whole);
  }
  return result;
}

ExpressionPtr ExpressionParser::parse_binary(Rule operand, std::initializer_list<std::string_view> operators) {
  auto left = (this->*operand)();
  for (size_t n = 0;; ++n) {
    auto op = std::find_if(operators.begin(), operators.end(),
                           [&](auto text) { return tokens_.peek_operator(text) || tokens_.peek_name(text); });
    if (op == operators.end()) return left;
    if (n > kMaxChain) tokens_.fail("too many operators in a row");
    tokens_.take();
    auto right = (this->*operand)();
    left = make(Kind::kBinary, std::string(*op), std::move(left), std::move(right));
  }
}

ExpressionPtr ExpressionParser::parse_or() { return parse_binary(&ExpressionParser::parse_and, {"or"}); }
ExpressionPtr ExpressionParser::parse_and() { return parse_binary(&ExpressionParser::parse_not, {"and"}); }

ExpressionPtr ExpressionParser::parse_not() {
  if (!tokens_.take_name("not")) return parse_compare();
  DepthGuard guard(tokens_);
  return make(Kind::kUnary, "not", parse_not());
}

ExpressionPtr ExpressionParser::parse_compare() {
  auto first = parse_sum();
  ExpressionPtr chain;
  while (true) {
    std::string op;
    bool is_not_in =
        tokens_.peek_name("not") && tokens_.peek(1).kind == Token::Kind::kName && tokens_.peek(1).text == "in";
    for (auto text : {"==", "!=", "<", ">", "<=", ">="}) {
      if (tokens_.peek_operator(text)) op = text;
    }
    if (is_not_in)
      tokens_.take(), op = "not in";
    else if (tokens_.peek_name("in"))
      op = "in";
    if (op.empty()) return chain ? std::move(chain) : std::move(first);
    tokens_.take();
    if (!chain) chain = make(Kind::kCompare, "", std::move(first));
    chain->names.push_back(op);
    chain->operands.push_back(parse_sum());
  }
}

ExpressionPtr ExpressionParser::parse_sum() { return parse_binary(&ExpressionParser::parse_concat, {"+", "-"}); }
ExpressionPtr ExpressionParser::parse_concat() { return parse_binary(&ExpressionParser::parse_product, {"~"}); }
ExpressionPtr ExpressionParser::parse_product() {
  return parse_binary(&ExpressionParser::parse_power, {"*", "/", "//", "%"});
}

ExpressionPtr ExpressionParser::parse_power() {
  auto left = parse_unary();
  for (size_t n = 0; tokens_.take_operator("**"); ++n) {
    if (n > kMaxChain) tokens_.fail("too many operators in a row");
    auto right = parse_unary();
    left = make(Kind::kBinary, "**", std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  DepthGuard guard(tokens_);
  ExpressionPtr result;
  if (tokens_.take_operator("-"))
    result = make(Kind::kUnary, "-", parse_unary(false));
  else if (tokens_.take_operator("+"))
    result = make(Kind::kUnary, "+", parse_unary(false));
  else
    result = parse_primary();
  result = parse_postfix(std::move(result));
  return with_filters ? parse_filters(std::move(result)) : std::move(result);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const auto& token = tokens_.peek();
  if (token.kind == Token::Kind::kString) {
    auto constant = make(Kind::kConstant);
    std::string text;
    while (tokens_.peek().kind == Token::Kind::kString) text += tokens_.take().text;  // neighbours are joined
    constant->value = Value::text(std::move(text));
    return constant;
  }
  if (token.kind == Token::Kind::kInteger || token.kind == Token::Kind::kFloat) {
    auto constant = make(Kind::kConstant);
    bool whole = token.kind == Token::Kind::kInteger;
    constant->value = whole ? Value::integer(std::strtoll(token.text.c_str(), nullptr, 10))
                            : Value::real(std::strtod(token.text.c_str(), nullptr));
    tokens_.take();
    return constant;
  }
  if (token.kind == Token::Kind::kName) return parse_keyword_or_name();
  if (tokens_.take_operator("[")) return parse_list();
  if (tokens_.take_operator("{")) return parse_dict();
  if (tokens_.take_operator("(")) return parse_bracketed();
  tokens_.fail(token.text.empty() ? "expected an expression"
                                  : fmt::format("expected an expression, found \"{}\"", token.text));
}

ExpressionPtr ExpressionParser::parse_keyword_or_name() {
  auto expression = make(Kind::kConstant);
  auto name = tokens_.take().text;
  if (name == "true" || name == "True")
    expression->value = Value::boolean(true);
  else if (name == "false" || name == "False")
    expression->value = Value::boolean(false);
  else if (name == "none" || name == "None")
    expression->value = Value::none();
  else
    expression->kind = Kind::kName, expression->name = name;
  return expression;
}

ExpressionPtr ExpressionParser::parse_list() {
  auto list = make(Kind::kList);
  while (!tokens_.take_operator("]")) {
    list->operands.push_back(parse());
    if (!tokens_.take_operator(",") && !tokens_.peek_operator("]")) tokens_.fail("expected \",\" or \"]\"");
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto dict = make(Kind::kDict);
  while (!tokens_.take_operator("}")) {
    dict->operands.push_back(parse());
    if (!tokens_.take_operator(":")) tokens_.fail("expected \":\"");
    dict->operands.push_back(parse());
    if (!tokens_.take_operator(",") && !tokens_.peek_operator("}")) tokens_.fail("expected \",\" or \"}\"");
  }
  return dict;
}

ExpressionPtr ExpressionParser::parse_bracketed() {
  auto tuple = make(Kind::kTuple);
  if (tokens_.take_operator(")")) return tuple;
  auto first = parse();
  if (tokens_.take_operator(")")) return first;
  tuple->operands.push_back(std::move(first));
  while (!tokens_.take_operator(")")) {
    if (!tokens_.take_operator(",")) tokens_.fail("expected \",\" or \")\"");
    if (!tokens_.peek_operator(")")) tuple->operands.push_back(parse());
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr operand) {
  for (size_t n = 0;; ++n) {
    if (n > kMaxChain) tokens_.fail("too many accesses in a row");
    if (tokens_.take_operator(".")) {
      const auto& token = tokens_.peek();
      if (token.kind == Token::Kind::kInteger) {
        auto index = make(Kind::kConstant);
        index->value = Value::integer(std::strtoll(tokens_.take().text.c_str(), nullptr, 10));
        operand = make(Kind::kSubscript, "", std::move(operand), std::move(index));
      } else {
        operand = make(Kind::kAttribute, tokens_.expect_name(), std::move(operand));
      }
    } else if (tokens_.take_operator("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (tokens_.take_operator("(")) {
      operand = make(Kind::kCall, "", std::move(operand));
      parse_arguments(*operand);
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr operand) {
  std::vector<ExpressionPtr> parts;
  ExpressionPtr part;
  if (!tokens_.peek_operator(":")) part = parse_with_tuple();
  bool slice = tokens_.peek_operator(":");
  parts.push_back(std::move(part));
  while (parts.size() < 3 && tokens_.take_operator(":")) {
    parts.push_back(tokens_.peek_operator(":") || tokens_.peek_operator("]") ? nullptr : parse());
  }
  if (!tokens_.take_operator("]")) tokens_.fail("expected \"]\"");
  if (!slice) return make(Kind::kSubscript, "", std::move(operand), std::move(parts[0]));
  auto result = make(Kind::kSlice, "", std::move(operand));
  parts.resize(3);
  for (auto& bound : parts) result->operands.push_back(std::move(bound));
  return result;
}

/// What stands between "(" (taken) and ")".
void ExpressionParser::parse_arguments(Expression& call) {
  while (!tokens_.take_operator(")")) {
    const auto& next = tokens_.peek(1);
    if (tokens_.peek().kind == Token::Kind::kName && next.kind == Token::Kind::kOperator && next.text == "=") {
      auto name = tokens_.take().text;
      tokens_.take();
      call.named.emplace_back(name, parse());
    } else {
      if (tokens_.peek_operator("*") || tokens_.peek_operator("**"))
        tokens_.fail("* and ** arguments are not supported");
      call.operands.push_back(parse());
    }
    if (!tokens_.take_operator(",") && !tokens_.peek_operator(")")) tokens_.fail("expected \",\" or \")\"");
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr operand, bool bare) {
  for (size_t n = 0;; ++n) {
    if (n > kMaxChain) tokens_.fail("too many filters in a row");
    if (bare || tokens_.take_operator("|")) {
      bare = false;
      auto filter = make(Kind::kFilter, tokens_.expect_name(), std::move(operand));
      if (tokens_.take_operator("(")) parse_arguments(*filter);
      operand = std::move(filter);
    } else if (operand && tokens_.take_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (operand && tokens_.peek_operator("(")) {
      operand = parse_postfix(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr operand) {
  bool negated = tokens_.take_name("not");
  auto test = make(Kind::kTest, tokens_.expect_name(), std::move(operand));
  const auto& token = tokens_.peek();
  bool is_keyword = token.kind == Token::Kind::kName &&
                    (token.text == "else" || token.text == "or" || token.text == "and" || token.text == "is" ||
                     token.text == "if" || token.text == "in" || token.text == "not");
  bool is_value = token.kind == Token::Kind::kName || token.kind == Token::Kind::kString ||
                  token.kind == Token::Kind::kInteger || token.kind == Token::Kind::kFloat;
  if (tokens_.take_operator("(")) {
    parse_arguments(*test);
  } else if ((is_value && !is_keyword) || tokens_.peek_operator("[") || tokens_.peek_operator("{")) {
    DepthGuard guard(tokens_);
    test->operands.push_back(parse_postfix(parse_primary()));
  }
  return negated ? make(Kind::kUnary, "not", std::move(test)) : std::move(test);
}

}  // namespace vlmtune::jinja
