// Expressions of the template language.
#pragma once
#include <string>
#include <vector>

#include "lib/text/jinja/ast.h"
#include "lib/text/jinja/lexer.h"

namespace vlmtune::jinja {

/// Tokens being read.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool peek_operator(std::string_view text) const {
    return peek().kind == Token::Kind::kOperator && peek().text == text;
  }
  bool peek_name(std::string_view text) const { return peek().kind == Token::Kind::kName && peek().text == text; }
  bool take_operator(std::string_view text) { return peek_operator(text) && (take(), true); }
  bool take_name(std::string_view text) { return peek_name(text) && (take(), true); }
  std::string expect_name();
  void expect(Token::Kind kind, const char* text);
  [[noreturn]] void fail(const std::string& message) const { throw Error(message, peek().line); }

 private:
  friend class DepthGuard;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// Counts how deep the parser is, and refuses what would exhaust the stack.
class DepthGuard {
 public:
  explicit DepthGuard(TokenStream& tokens);
  ~DepthGuard() { --tokens_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  TokenStream& tokens_;
};

/// Precedence, from weak to strong: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary, postfix, filters.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}
  ExpressionPtr parse(bool with_condition = true);
  /// An expression, or several between commas.
  ExpressionPtr parse_with_tuple(bool with_condition = true);
  /// "| a | b(c)" applied to `operand` (null: what a block wrote); `bare`: the first name stands without a bar.
  ExpressionPtr parse_filters(ExpressionPtr operand, bool bare = false);

 private:
  using Rule = ExpressionPtr (ExpressionParser::*)();
  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_subscript(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_bracketed();
  ExpressionPtr parse_keyword_or_name();
  void parse_arguments(Expression& call);
  ExpressionPtr parse_binary(Rule operand, std::initializer_list<std::string_view> operators);
  ExpressionPtr make(Expression::Kind kind, std::string name = "") const;
  ExpressionPtr make(Expression::Kind kind, std::string name, ExpressionPtr first,
                     ExpressionPtr second = nullptr) const;

  TokenStream& tokens_;
};

}  // namespace vlmtune::jinja
