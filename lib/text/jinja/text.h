// Strings that remember, byte by byte, who wrote them.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune::jinja {

/// The template itself; other sources are indices of messages.
inline constexpr int kTemplateSource = -1;

/// A UTF-8 string cut into runs, each from one source. Every string operation of the interpreter keeps the runs right.
class Text {
 public:
  struct Run {
    size_t end;  // first byte behind the run
    int source;
  };

  Text() = default;
  Text(std::string bytes, int source = kTemplateSource);  // NOLINT: literals are texts of the template

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }
  int source_at(size_t byte) const;

  void append(std::string_view bytes, int source);
  void append(const Text& other);
  /// Bytes [begin, end).
  void append(const Text& other, size_t begin, size_t end);
  Text substr(size_t begin, size_t end) const;

  /// Code points, and the byte offset of the n-th.
  size_t length() const;
  size_t offset_of(size_t code_point) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

/// What Python's str.isspace says.
bool is_python_space(char32_t code_point);

/// Python's strip, lstrip, rstrip; `characters` "" means white space.
Text strip(const Text& text, std::string_view characters, bool left, bool right);
/// Every occurrence of `from`, at most `limit` (negative: all).
Text replace(const Text& text, std::string_view from, const Text& to, long limit);
/// Python's split: at `separator`, or at runs of white space when it is empty.
std::vector<Text> split(const Text& text, std::string_view separator, long limit);
std::vector<Text> rsplit(const Text& text, std::string_view separator, long limit);
std::vector<Text> splitlines(const Text& text);
enum class Case { kUpper, kLower, kTitle, kCapitalize };
Text change_case(const Text& text, Case to);

}  // namespace vlmtune::jinja
