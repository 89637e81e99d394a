#include "lib/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

uint8_t all_labels(const LabelledText& text, size_t begin, size_t end) {
  uint8_t label = 0;
  for (size_t i = begin; i < end; ++i) label |= text.label_at(i);
  return label;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// Appends `replacement` for [begin, end) of `source`. Bytes that are equal at both ends keep their labels; the changed
/// middle gets all labels of what it replaces.
void append_rewritten(LabelledText& out, const LabelledText& source, size_t begin, size_t end,
                      std::string_view replacement) {
  out.text += replacement;
  if (!source.labelled()) return;
  size_t shared = std::min(end - begin, replacement.size()), head = 0, tail = 0;
  while (head < shared && source.text[begin + head] == replacement[head]) ++head;
  while (tail < shared - head && source.text[end - 1 - tail] == replacement[replacement.size() - 1 - tail]) ++tail;
  auto first = source.labels.begin() + static_cast<std::ptrdiff_t>(begin);
  auto last = source.labels.begin() + static_cast<std::ptrdiff_t>(end);
  out.labels.insert(out.labels.end(), first, first + static_cast<std::ptrdiff_t>(head));
  out.labels.insert(out.labels.end(), replacement.size() - head - tail, all_labels(source, begin + head, end - tail));
  out.labels.insert(out.labels.end(), last - static_cast<std::ptrdiff_t>(tail), last);
}

}  // namespace

void NormalizerSequence::apply(LabelledText& text) const {
  for (const auto& part : parts_) part->apply(text);
}

std::string UnicodeNormalizer::normalize(std::string_view text) const {
  bool compose = form_ == Form::kNfc || form_ == Form::kNfkc, compatible = form_ == Form::kNfkc || form_ == Form::kNfkd;
  int options =
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* result = nullptr;
  auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  if (length < 0) return std::string(text);  // only for text that is not UTF-8, which was refused before
  std::string normalized(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
  std::free(result);
  return normalized;
}

void UnicodeNormalizer::apply(LabelledText& text) const {
  if (is_ascii(text.text)) return;
  if (!text.labelled()) {
    text.text = normalize(text.text);
    return;
  }
  // An ASCII character never joins what stands before it, so the text may be cut there and each part keep its labels.
  LabelledText out;
  for (size_t begin = 0; begin < text.text.size();) {
    size_t end = begin + 1;
    while (end < text.text.size() && static_cast<unsigned char>(text.text[end]) >= 0x80) ++end;
    append_rewritten(out, text, begin, end, normalize(std::string_view(text.text).substr(begin, end - begin)));
    begin = end;
  }
  text = std::move(out);
}

void LowercaseNormalizer::apply(LabelledText& text) const {
  LabelledText out;
  for (size_t at = 0; at < text.text.size();) {
    auto label = text.label_at(at);
    auto code = next_code_point(text.text, at);
    std::string lower;
    append_lower(lower, code);
    out.append(lower, label, text.labelled());
  }
  text = std::move(out);
}

bool ReplaceNormalizer::find(std::string_view text, size_t start, size_t& begin, size_t& end) const {
  if (pattern_) return pattern_->find(text, start, begin, end) && end > begin;
  if (literal_.empty()) return false;
  begin = text.find(literal_, start);
  end = begin + literal_.size();
  return begin != std::string_view::npos;
}

void ReplaceNormalizer::apply(LabelledText& text) const {
  size_t begin = 0, end = 0, at = 0;
  if (!find(text.text, 0, begin, end)) return;
  LabelledText out;
  do {
    append_rewritten(out, text, at, begin, std::string_view(text.text).substr(at, begin - at));
    out.append(content_, all_labels(text, begin, end), text.labelled());
    at = end;
  } while (find(text.text, at, begin, end));
  append_rewritten(out, text, at, text.text.size(), std::string_view(text.text).substr(at));
  text = std::move(out);
}

void PrependNormalizer::apply(LabelledText& text) const {
  if (text.text.empty()) return;
  text.text.insert(0, prefix_);
  // What is put in belongs to what follows: the model has to write it, too.
  if (text.labelled()) text.labels.insert(text.labels.begin(), prefix_.size(), text.labels.front() & kAnswerByte);
}

void StripNormalizer::apply(LabelledText& text) const {
  size_t begin = 0, end = text.text.size();
  for (size_t at = 0; left_ && at < end;) {
    if (!is_white_space(next_code_point(text.text, at))) break;
    begin = at;
  }
  while (right_ && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text.text[last]) & 0xC0) == 0x80) --last;
    size_t at = last;
    if (!is_white_space(next_code_point(text.text, at))) break;
    end = last;
  }
  text.text = text.text.substr(begin, end - begin);
  if (text.labelled()) {
    text.labels.erase(text.labels.begin() + static_cast<std::ptrdiff_t>(end), text.labels.end());
    text.labels.erase(text.labels.begin(), text.labels.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

}  // namespace vlmtune
