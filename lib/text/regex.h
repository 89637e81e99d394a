// PCRE2 behind the dialect of tokenizer.json, which is written for Oniguruma.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace vlmtune {

/// A compiled pattern; matches UTF-8 with Unicode classes. Safe to share between threads.
class Regex {
 public:
  /// Throws std::invalid_argument with PCRE2's words when the pattern is not one.
  explicit Regex(const std::string& pattern);

  /// The next match at or behind `start`; false when there is none. `text` must be valid UTF-8.
  bool find(std::string_view text, size_t start, size_t& begin, size_t& end) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace vlmtune
