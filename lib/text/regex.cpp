#define PCRE2_CODE_UNIT_WIDTH 8
#include "lib/text/regex.h"

#include <pcre2.h>

#include <stdexcept>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

// Oniguruma's \s is White_Space; PCRE2's also has U+180E.
constexpr std::string_view kSpaceRanges =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

std::string to_pcre(const std::string& pattern) {
  std::string out;
  int depth = 0;  // of character classes
  for (size_t i = 0; i < pattern.size(); ++i) {
    char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      char next = pattern[++i];
      if (next == 's') {
        out += depth > 0 ? std::string(kSpaceRanges) : "[" + std::string(kSpaceRanges) + "]";
      } else if (next == 'S' && depth == 0) {
        out += "[^" + std::string(kSpaceRanges) + "]";
      } else {
        out += {c, next};
      }
      continue;
    }
    if (c == '[') {
      if (depth == 0) ++depth;
    } else if (c == ']' && depth > 0) {
      --depth;
    } else if (c == '&' && depth > 0 && i + 1 < pattern.size() && pattern[i + 1] == '&') {
      throw std::invalid_argument("intersections of character classes (&&) are not supported");
    }
    out += c;
  }
  return out;
}

pcre2_match_data* match_data() {
  struct Owner {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    ~Owner() { pcre2_match_data_free(data); }
  };
  thread_local Owner owner;
  return owner.data;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string pattern;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern) {
  if (pattern.size() > 20000) throw std::invalid_argument("the pattern is longer than 20000 bytes");
  auto translated = to_pcre(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->pattern = pattern;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP,
                             &error, &offset, nullptr);
  if (!code->code) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof message);
    throw std::invalid_argument(reinterpret_cast<const char*>(message));
  }
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without JIT pcre2_match interprets, only slower
  code_ = code;
}

bool Regex::find(std::string_view text, size_t start, size_t& begin, size_t& end) const {
  auto* data = match_data();
  auto match = [&](uint32_t options) {
    return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                       options | PCRE2_NO_UTF_CHECK, data, nullptr);
  };
  int rc = match(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0)
    throw input_error("the tokenizer's pattern {} fails on a text of {} bytes (PCRE2 error {})", code_->pattern,
                      text.size(), rc);
  auto* offsets = pcre2_get_ovector_pointer(data);
  begin = offsets[0], end = offsets[1];
  return end >= begin;  // \K can turn them round
}

}  // namespace vlmtune
