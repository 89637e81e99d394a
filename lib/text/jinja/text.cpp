#include "lib/text/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "lib/text/unicode.h"

namespace vlmtune::jinja {
namespace {

size_t previous_character(std::string_view text, size_t at) {
  --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::vector<Text> split_at_space(const Text& text, long limit) {
  std::vector<Text> parts;
  std::string_view bytes = text.bytes();
  size_t at = 0;
  auto skip_space = [&] {
    for (size_t next = at; next < bytes.size(); at = next) {
      if (!is_python_space(next_code_point(bytes, next))) return;
    }
  };
  for (skip_space(); at < bytes.size(); skip_space()) {
    if (limit >= 0 && static_cast<long>(parts.size()) == limit) {
      parts.push_back(strip(text.substr(at, bytes.size()), "", false, true));
      return parts;
    }
    size_t begin = at;
    for (size_t next = at; next < bytes.size(); at = next) {
      if (is_python_space(next_code_point(bytes, next))) break;
    }
    parts.push_back(text.substr(begin, at));
  }
  return parts;
}

}  // namespace

Text::Text(std::string bytes, int source) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), source});
}

int Text::source_at(size_t byte) const {
  auto run = std::upper_bound(runs_.begin(), runs_.end(), byte, [](size_t at, const Run& r) { return at < r.end; });
  return run == runs_.end() ? kTemplateSource : run->source;
}

void Text::append(std::string_view bytes, int source) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().source == source)
    runs_.back().end = bytes_.size();
  else
    runs_.push_back({bytes_.size(), source});
}

void Text::append(const Text& other) { append(other, 0, other.size()); }

void Text::append(const Text& other, size_t begin, size_t end) {
  if (begin >= end) return;
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  for (; run != other.runs_.end() && begin < end; ++run) {
    size_t stop = std::min(end, run->end);
    append(std::string_view(other.bytes_).substr(begin, stop - begin), run->source);
    begin = stop;
  }
}

Text Text::substr(size_t begin, size_t end) const {
  Text part;
  part.append(*this, begin, std::min(end, size()));
  return part;
}

size_t Text::length() const {
  return static_cast<size_t>(std::count_if(bytes_.begin(), bytes_.end(),
                                           [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t Text::offset_of(size_t code_point) const {
  size_t at = 0;
  for (; code_point > 0 && at < size(); --code_point) at += utf8_width(bytes_, at);
  return std::min(at, size());
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

Text strip(const Text& text, std::string_view characters, bool left, bool right) {
  std::string_view bytes = text.bytes();
  auto strippable = [&](size_t at) {
    size_t next = at;
    auto code = next_code_point(bytes, next);
    return characters.empty() ? is_python_space(code)
                              : characters.find(bytes.substr(at, next - at)) != std::string_view::npos;
  };
  size_t begin = 0, end = bytes.size();
  while (left && begin < end && strippable(begin)) begin += utf8_width(bytes, begin);
  while (right && end > begin && strippable(previous_character(bytes, end))) end = previous_character(bytes, end);
  return text.substr(begin, end);
}

Text replace(const Text& text, std::string_view from, const Text& to, long limit) {
  Text out;
  std::string_view bytes = text.bytes();
  size_t at = 0;
  if (from.empty()) {  // Python puts `to` between all characters
    for (; limit != 0; --limit) {
      out.append(to);
      if (at >= bytes.size()) break;
      size_t next = at + utf8_width(bytes, at);
      out.append(text, at, next);
      at = next;
    }
    out.append(text, at, bytes.size());
    return out;
  }
  for (size_t found; limit != 0 && (found = bytes.find(from, at)) != std::string_view::npos; --limit) {
    out.append(text, at, found);
    out.append(to);
    at = found + from.size();
  }
  out.append(text, at, bytes.size());
  return out;
}

std::vector<Text> split(const Text& text, std::string_view separator, long limit) {
  if (separator.empty()) return split_at_space(text, limit);
  std::vector<Text> parts;
  std::string_view bytes = text.bytes();
  size_t at = 0;
  for (size_t found; limit != 0 && (found = bytes.find(separator, at)) != std::string_view::npos; --limit) {
    parts.push_back(text.substr(at, found));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at, bytes.size()));
  return parts;
}

std::vector<Text> rsplit(const Text& text, std::string_view separator, long limit) {
  if (limit < 0 || separator.empty()) return split(text, separator, limit);
  std::vector<Text> parts;
  std::string_view bytes = text.bytes();
  size_t end = bytes.size();
  for (; limit > 0 && end >= separator.size(); --limit) {
    auto found = bytes.rfind(separator, end - separator.size());
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(found + separator.size(), end));
    end = found;
  }
  parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> splitlines(const Text& text) {
  std::vector<Text> lines;
  std::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] != '\n' && bytes[at] != '\r') continue;
    lines.push_back(text.substr(begin, at));
    if (bytes[at] == '\r' && at + 1 < bytes.size() && bytes[at + 1] == '\n') ++at;
    begin = at + 1;
  }
  if (begin < bytes.size()) lines.push_back(text.substr(begin, bytes.size()));
  return lines;
}

Text change_case(const Text& text, Case to) {
  Text out;
  bool at_word_start = true;
  for (size_t at = 0; at < text.size();) {
    int source = text.source_at(at);
    auto code = static_cast<utf8proc_int32_t>(next_code_point(text.bytes(), at));
    bool upper = to == Case::kUpper || (to != Case::kLower && at_word_start);
    std::string changed;
    if (upper && code == 0xDF)
      changed += to == Case::kUpper ? "SS" : "Ss";
    else
      append_utf8(changed, static_cast<char32_t>(upper ? utf8proc_toupper(code) : utf8proc_tolower(code)));
    out.append(changed, source);
    auto category = utf8proc_category(code);
    bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    at_word_start = to == Case::kTitle && !letter;
  }
  return out;
}

}  // namespace vlmtune::jinja
