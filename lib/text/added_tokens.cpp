#include "lib/text/added_tokens.h"

#include <algorithm>

#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

char32_t character_before(std::string_view text, size_t position) {
  size_t at = position - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return next_code_point(text, at);
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  size_t after = end;
  return (begin == 0 || !is_word_character(character_before(text, begin))) &&
         (end == text.size() || !is_word_character(next_code_point(text, after)));
}

size_t skip_space_left(std::string_view text, size_t from, size_t limit) {
  while (from > limit && is_white_space(character_before(text, from))) {
    --from;
    while (from > limit && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) --from;
  }
  return from;
}

size_t skip_space_right(std::string_view text, size_t from) {
  while (from < text.size()) {
    size_t next = from;
    if (!is_white_space(next_code_point(text, next))) break;
    from = next;
  }
  return from;
}

bool is_blank(std::string_view text) { return skip_space_right(text, 0) == text.size(); }

}  // namespace

bool is_box_mark(std::string_view content) {
  constexpr std::string_view kMarks[] = {"<ref>",  "</ref>",  "<|object_ref_start|>", "<|object_ref_end|>",
                                         "<box>",  "</box>",  "<|box_start|>",        "<|box_end|>",
                                         "<quad>", "</quad>", "<|quad_start|>",       "<|quad_end|>"};
  return std::find(std::begin(kMarks), std::end(kMarks), content) != std::end(kMarks);
}

void AddedTokenMatcher::add(std::string_view pattern, const AddedToken* token) {
  if (pattern.empty()) return;
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  uint32_t node = 0;
  for (char c : pattern) {
    auto [child, is_new] = nodes_[node].children.try_emplace(c, static_cast<uint32_t>(nodes_.size()));
    node = child->second;
    if (is_new) nodes_.emplace_back();
  }
  nodes_[node].token = token;
}

template <typename Accept>
const AddedToken* AddedTokenMatcher::search(std::string_view text, size_t position, size_t& length,
                                            const Accept& accept) const {
  if (!starts_[static_cast<unsigned char>(text[position])]) return nullptr;
  const AddedToken* best = nullptr;
  uint32_t node = 0;
  for (size_t at = position; at < text.size(); ++at) {
    auto child = nodes_[node].children.find(text[at]);
    if (child == nodes_[node].children.end()) break;
    node = child->second;
    if (nodes_[node].token && accept(at + 1, *nodes_[node].token)) {
      best = nodes_[node].token;
      length = at + 1 - position;
    }
  }
  return best;
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t position, size_t& length) const {
  return search(text, position, length, [](size_t, const AddedToken&) { return true; });
}

std::vector<AddedTokenMatcher::Match> AddedTokenMatcher::find_all(const LabelledText& source, ParseRule rule) const {
  std::vector<Match> matches;
  std::string_view text = source.text;
  if (nodes_.size() == 1) return matches;
  size_t taken = 0;  // everything before is inside a match
  for (size_t at = 0; at < text.size();) {
    auto may_parse = [&](size_t end, const AddedToken& token) {
      if (rule == ParseRule::kEverywhere) return true;
      bool control = rule == ParseRule::kControlOnly;
      if (control && token.box_mark) return true;
      for (size_t i = at; control && i < end; ++i) control = source.label_at(i) & kControlByte;
      return control || (!token.special && is_blank(token.content));
    };
    size_t length = 0;
    const auto* token = search(text, at, length, may_parse);
    if (!token) {
      ++at;
      continue;
    }
    size_t core_begin = at, core_end = at + length;
    at = core_end;
    if (token->single_word && !stands_alone(text, core_begin, core_end)) continue;
    size_t begin = token->lstrip ? skip_space_left(text, core_begin, std::min(taken, core_begin)) : core_begin;
    size_t end = token->rstrip ? skip_space_right(text, core_end) : core_end;
    matches.push_back({begin, end, core_begin, core_end, token});
    taken = std::max(taken, end);
  }
  return matches;
}

}  // namespace vlmtune
