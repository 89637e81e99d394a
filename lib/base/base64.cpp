#include "lib/base/base64.h"

#include <array>
#include <cstdint>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

/// The six bits of each letter; -1 for bytes outside the alphabet.
constexpr std::array<int8_t, 256> base64_values() {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i) values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  return values;
}

}  // namespace

std::string decode_base64(std::string_view text, const std::string& name) {
  static constexpr auto kValues = base64_values();
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  bool padded = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
    if (c == '=') {
      padded = true;
      continue;
    }
    const int8_t value = kValues[static_cast<uint8_t>(c)];
    if (value < 0 || padded) throw input_error("{}: byte {} of the base64 text is not valid", name, i);
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (++count % 4 == 0) {
      for (int shift = 16; shift >= 0; shift -= 8) out += static_cast<char>(bits >> shift & 255);
    }
  }
  if (count % 4 == 1) throw input_error("{}: the base64 text ends in the middle of a byte", name);
  if (count % 4 >= 2) out += static_cast<char>(bits >> (count % 4 == 2 ? 4 : 10) & 255);
  if (count % 4 == 3) out += static_cast<char>(bits >> 2 & 255);
  return out;
}

}  // namespace vlmtune
