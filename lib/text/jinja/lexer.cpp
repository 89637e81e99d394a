#include "lib/text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lib/text/jinja/value.h"
#include "lib/text/unicode.h"

namespace vlmtune::jinja {
namespace {

using Kind = Token::Kind;

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// "\r\n" and "\r" become "\n", and one newline at the end is dropped, as Jinja does.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r')
      out += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      out += '\n';
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      size_t open = find_tag(at_);
      read_data(open);
      if (at_ >= source_.size()) break;
      char kind = source_[at_ + 1];
      at_ += 2;
      bool marked = at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+');
      if (marked && (kind != '{' || source_[at_] == '-')) ++at_;
      if (kind == '#')
        skip_comment();
      else if (kind == '%' && read_raw())
        continue;
      else
        read_tag(kind);
    }
    push(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw Error(message, line_); }
  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  bool has(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }

  size_t find_tag(size_t from) const {
    for (size_t i = from; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }

  void advance_to(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  /// The text up to a tag at `open`, less the white space that the tag takes.
  void read_data(size_t open) {
    size_t begin = at_, end = open;
    if (open < source_.size()) {
      char kind = source_[open + 1], mark = open + 2 < source_.size() ? source_[open + 2] : ' ';
      if (mark == '-') {
        while (end > begin && is_space(source_[end - 1])) --end;
      } else if (mark != '+' && kind != '{') {  // lstrip_blocks
        size_t start = end;
        while (start > begin && (source_[start - 1] == ' ' || source_[start - 1] == '\t')) --start;
        bool starts_line = start == 0 || source_[start - 1] == '\n';
        if (starts_line) end = start;
      }
    }
    if (end > begin) push(Kind::kData, source_.substr(begin, end - begin));
    advance_to(open);
  }

  /// Behind "%}" or "#}": trim_blocks takes one newline, a "-" all white space.
  void after_block(bool strip, bool keep) {
    size_t end = at_;
    if (strip) {
      while (end < source_.size() && is_space(source_[end])) ++end;
    } else if (!keep && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    advance_to(end);
  }

  void skip_comment() {
    size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment {# is not closed");
    bool marked = end > at_;
    bool strip = marked && source_[end - 1] == '-', keep = marked && source_[end - 1] == '+';
    advance_to(end + 2);
    after_block(strip, keep);
  }

  /// {% raw %} ... {% endraw %}; false when the tag is another one.
  bool read_raw() {
    size_t i = at_;
    auto skip = [&] {
      while (i < source_.size() && is_space(source_[i])) ++i;
    };
    skip();
    if (source_.compare(i, 3, "raw") != 0) return false;
    i += 3;
    skip();
    bool strip = i < source_.size() && source_[i] == '-';
    if (strip) ++i;
    if (source_.compare(i, 2, "%}") != 0) return false;
    advance_to(i + 2);
    after_block(strip, false);
    for (size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 2)) {
      i = open + 2;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      skip();
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      skip();
      bool strip_after = i < source_.size() && source_[i] == '-';
      if (strip_after) ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      read_data(open);
      advance_to(i + 2);
      after_block(strip_after, false);
      return true;
    }
    fail("{% raw %} is not closed");
  }

  void read_tag(char kind) {
    bool output = kind == '{';
    std::string_view close = output ? "}}" : "%}";
    push(output ? Kind::kOutputBegin : Kind::kBlockBegin, "");
    std::vector<char> brackets;
    while (true) {
      while (at_ < source_.size() && is_space(source_[at_])) advance_to(at_ + 1);
      if (at_ >= source_.size()) fail(fmt::format("a tag is not closed by {}", close));
      bool marked = source_[at_] == '-' || (source_[at_] == '+' && !output);
      if (brackets.empty() && (has(close) || (marked && std::string_view(source_).substr(at_ + 1).starts_with(close))))
        break;
      read_expression_token(brackets);
    }
    bool strip = source_[at_] == '-', keep = source_[at_] == '+';
    push(output ? Kind::kOutputEnd : Kind::kBlockEnd, "");
    advance_to(at_ + close.size() + (strip || keep ? 1 : 0));
    if (!output)
      after_block(strip, keep);
    else if (strip)
      after_block(true, false);
  }

  void read_expression_token(std::vector<char>& brackets) {
    char c = source_[at_];
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      push(Kind::kName, source_.substr(at_, end - at_));
      at_ = end;
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '"' || c == '\'') {
      read_string(c);
    } else {
      read_operator(brackets);
    }
  }

  void read_number() {
    size_t end = at_;
    bool real = false;
    auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    };
    digits();
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) real = true, ++end, digits();
    if (end + 1 < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (source_[exponent] == '+' || source_[exponent] == '-') ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) real = true, end = exponent, digits();
    }
    auto text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    if (text.size() > 18 && !real) fail("an integer of more than 18 digits");
    push(real ? Kind::kFloat : Kind::kInteger, text);
    at_ = end;
  }

  void read_string(char quote) {
    std::string value;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 >= source_.size())
        value += source_[i];
      else
        i = read_escape(i + 1, value);
    }
    if (i >= source_.size()) fail("a string is not closed");
    push(Kind::kString, value);
    advance_to(i + 1);
  }

  /// Appends the meaning of the escape whose letter is at `i`; returns its last byte. As Python's unicode-escape.
  size_t read_escape(size_t i, std::string& value) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    char c = source_[i];
    if (c == '\n') return i;
    if (auto index = kLetters.find(c); index != std::string_view::npos) {
      value += kMeanings[index];
      return i;
    }
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0 && c >= '0' && c <= '7') {
      char32_t code = 0;
      size_t end = i;
      while (end < std::min(i + 3, source_.size()) && source_[end] >= '0' && source_[end] <= '7')
        code = code * 8 + static_cast<char32_t>(source_[end++] - '0');
      append_utf8(value, code);
      return end - 1;
    }
    if (digits == 0) {
      value += {'\\', c};
      return i;
    }
    auto hex = source_.substr(i + 1, digits);
    bool valid = hex.size() == digits && hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    auto code = valid ? static_cast<char32_t>(std::stoul(hex, nullptr, 16)) : 0x110000;
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("a \\x, \\u or \\U escape is not a character");
    append_utf8(value, code);
    return i + digits;
  }

  void read_operator(std::vector<char>& brackets) {
    constexpr std::array<std::string_view, 6> kTwo = {"//", "**", "==", "!=", "<=", ">="};
    constexpr std::string_view kOne = "+-*/%~|.,:()[]{}<>=;";
    std::string text(1, source_[at_]);
    for (auto two : kTwo) {
      if (has(two)) text = two;
    }
    if (text.size() == 1 && kOne.find(text[0]) == std::string_view::npos)
      fail(fmt::format("unexpected character \"{}\"", text));
    char c = text[0];
    if (c == '(' || c == '[' || c == '{') brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) fail(fmt::format("unexpected \"{}\"", c));
      brackets.pop_back();
    }
    push(Kind::kOperator, text);
    at_ += text.size();
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace vlmtune::jinja
