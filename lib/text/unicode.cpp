#include "lib/text/unicode.h"

#include <utf8proc.h>

namespace vlmtune {
namespace {

struct Decoded {
  size_t length;   // bytes of the character, or of the maximal invalid part
  bool valid;      // a whole character
  bool truncated;  // the text ended inside a character that was valid so far
};

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Table 3-7 of the Unicode standard: which second bytes may follow a lead byte.
Decoded decode_at(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  auto lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  size_t width = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t available = text.size() - at;
  for (size_t i = 1; i < width; ++i) {
    if (i >= available) return {i, false, true};
    bool fits = i == 1 ? byte(1) >= low && byte(1) <= high : is_continuation(byte(i));
    if (!fits) return {i, false, false};
  }
  return {width, true, false};
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    auto decoded = decode_at(text, at);
    if (!decoded.valid) return at;
    at += decoded.length;
  }
  return std::nullopt;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[position + i])); };
  char32_t lead = byte(0);
  size_t width = utf8_width(text, position);
  char32_t code = lead;
  if (width == 2) code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  if (width == 3) code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (width == 4) code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  position += width;
  return code;
}

void append_utf8(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

size_t append_utf8_lossy(std::string& text, std::string_view bytes, bool more_follows) {
  size_t at = 0;
  while (at < bytes.size()) {
    auto decoded = decode_at(bytes, at);
    if (decoded.truncated && more_follows) return at;
    if (decoded.valid) {
      text += bytes.substr(at, decoded.length);
    } else {
      text += "\uFFFD";
    }
    at += decoded.length;
  }
  return at;
}

void append_lower(std::string& text, char32_t code_point) {
  if (code_point == 0x130)
    text += "i\u0307";
  else
    append_utf8(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
}

std::string to_lower(std::string_view text) {
  std::string lower;
  for (size_t at = 0; at < text.size();) append_lower(lower, next_code_point(text, at));
  return lower;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t code_point) {
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_word_character(char32_t code_point) {
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ND) || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || code_point == 0x200C || code_point == 0x200D;
}

}  // namespace vlmtune
