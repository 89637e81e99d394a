#include "lib/text/charsmap.h"

#include <utf8proc.h>

#include <cstring>
#include <stdexcept>

#include "lib/base/base64.h"
#include "lib/base/errors.h"
#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

constexpr size_t kLongestGrapheme = 6;  // bytes; longer ones are looked up by character

uint32_t read_u32(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

size_t grapheme_end(std::string_view text, size_t begin) {
  size_t at = begin;
  auto previous = static_cast<utf8proc_int32_t>(next_code_point(text, at));
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    size_t next = at;
    auto code = static_cast<utf8proc_int32_t>(next_code_point(text, next));
    if (utf8proc_grapheme_break_stateful(previous, code, &state)) break;
    previous = code, at = next;
  }
  return at;
}

}  // namespace

CharsmapNormalizer::CharsmapNormalizer(const std::string& blob) {
  if (blob.size() < 4) throw std::invalid_argument("the character map is shorter than its header");
  size_t trie_bytes = read_u32(blob, 0);
  if (trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4)
    throw std::invalid_argument("the character map's trie is longer than the map");
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) trie_.push_back(read_u32(blob, at));
  strings_ = blob.substr(4 + trie_bytes);
}

CharsmapNormalizer CharsmapNormalizer::from_base64(const JsonView& value) {
  try {
    return CharsmapNormalizer(decode_base64(value.as_string(), "the character map"));
  } catch (const UserError& error) {
    throw value.error(error.what());
  } catch (const std::invalid_argument& error) {
    throw value.error(error.what());
  }
}

const char* CharsmapNormalizer::lookup(std::string_view key) const {
  auto offset = [](uint32_t unit) -> size_t { return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6); };
  if (trie_.empty()) return nullptr;
  size_t node = offset(trie_[0]);
  for (char c : key) {
    auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return nullptr;
    node ^= byte;
    if (node >= trie_.size()) return nullptr;
    auto unit = trie_[node];
    if ((unit & (1u << 31 | 0xFF)) != byte) return nullptr;
    node ^= offset(unit);
    if (node >= trie_.size()) return nullptr;
    if (unit >> 8 & 1) {
      size_t at = trie_[node] & 0x7FFFFFFF;
      return at < strings_.size() ? strings_.c_str() + at : nullptr;
    }
  }
  return nullptr;
}

void CharsmapNormalizer::apply(LabelledText& text) const {
  LabelledText out;
  auto put = [&](size_t begin, size_t end, std::string_view bytes) {
    uint8_t labels = 0;
    for (size_t i = begin; i < end; ++i) labels |= text.label_at(i);
    out.append(bytes, labels, text.labelled());
  };
  std::string_view source = text.text;
  for (size_t begin = 0; begin < source.size();) {
    size_t end = grapheme_end(source, begin);
    if (end - begin < kLongestGrapheme) {
      if (const char* whole = lookup(source.substr(begin, end - begin))) {
        put(begin, end, whole);
        begin = end;
        continue;
      }
    }
    while (begin < end) {
      size_t width = utf8_width(source, begin);
      const char* replacement = lookup(source.substr(begin, width));
      put(begin, begin + width, replacement ? std::string_view(replacement) : source.substr(begin, width));
      begin += width;
    }
  }
  text = std::move(out);
}

}  // namespace vlmtune
