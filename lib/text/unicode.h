// UTF-8 and the few character classes that tokenizers speak of.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace vlmtune {

/// Offset of the first byte that is not valid UTF-8 (surrogates and overlong forms are not), or nothing.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Bytes of the character that starts at `text[position]`; the text must be valid UTF-8.
inline size_t utf8_width(std::string_view text, size_t position) {
  auto lead = static_cast<unsigned char>(text[position]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// The code point at `position`, which moves behind it; the text must be valid UTF-8.
char32_t next_code_point(std::string_view text, size_t& position);

void append_utf8(std::string& text, char32_t code_point);

/// Appends `bytes` with each maximal invalid part replaced by U+FFFD, as Rust's from_utf8_lossy and Python's "replace"
/// do. With `more_follows`, an unfinished character at the end is left alone. Returns the number of bytes taken.
size_t append_utf8_lossy(std::string& text, std::string_view bytes, bool more_follows);

/// Appends the character in lower case; İ alone becomes two.
void append_lower(std::string& text, char32_t code_point);
/// The text in lower case, as Python's str.lower has it but for a final sigma; it must be valid UTF-8.
std::string to_lower(std::string_view text);

/// Unicode White_Space.
bool is_white_space(char32_t code_point);
/// General categories N*.
bool is_numeric(char32_t code_point);
/// General categories P*, and all ASCII punctuation.
bool is_punctuation(char32_t code_point);
/// A letter, mark, digit or connector: what \w matches.
bool is_word_character(char32_t code_point);

}  // namespace vlmtune
