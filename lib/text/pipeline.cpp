#include "lib/text/pipeline.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

LabelledText slice(const LabelledText& text, size_t begin, size_t end) {
  LabelledText part{text.text.substr(begin, end - begin), {}};
  if (text.labelled()) {
    part.labels.assign(text.labels.begin() + static_cast<std::ptrdiff_t>(begin),
                       text.labels.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return part;
}

EncodedToken added_piece(const LabelledText& text, const AddedTokenMatcher::Match& match) {
  uint8_t labels = 0;
  for (size_t i = match.core_begin; i < match.core_end; ++i) labels |= text.label_at(i);
  return {match.token->id, labels, true, (text.label_at(match.core_begin) & kEndOfTurnByte) != 0};
}

/// Calls `on_text(part, begins_at_0)` and `on_token` for the text cut at its added tokens.
template <typename OnText, typename OnToken>
void cut_at_added(LabelledText text, const AddedTokenMatcher& matcher, ParseRule rule, const OnText& on_text,
                  const OnToken& on_token) {
  auto matches = matcher.find_all(text, rule);
  if (matches.empty()) {
    on_text(std::move(text), true);
    return;
  }
  size_t at = 0;
  for (const auto& match : matches) {
    if (match.begin > at) on_text(slice(text, at, match.begin), at == 0);
    on_token(added_piece(text, match));
    at = match.end;
  }
  if (at < text.text.size()) on_text(slice(text, at, text.text.size()), false);
}

}  // namespace

bool TokenizerPipeline::add_token(AddedToken token) {
  if (token.id < 0 || token.id > kMaxTokenId) return false;
  token.box_mark = is_box_mark(token.content);
  auto [entry, is_new] = added_by_content_.try_emplace(token.content, nullptr);
  if (is_new) {
    added_.push_back(std::make_unique<AddedToken>());
    entry->second = added_.back().get();
  }
  *entry->second = std::move(token);
  largest_added_id_ = std::max<int64_t>(largest_added_id_, entry->second->id);
  return true;
}

void TokenizerPipeline::add_token_without_id(AddedToken token) {
  auto known = id_of(token.content);
  token.id = static_cast<int32_t>(known.value_or(vocab_size()));
  add_token(std::move(token));
}

void TokenizerPipeline::finish() {
  for (const auto& token : added_) {
    added_by_id_[token->id] = token.get();
    if (token->special) model->forbid(token->id);
    token->written = token->content;
    if (token->normalized && normalizer) {
      LabelledText pattern{token->content, {}};
      normalizer->apply(pattern);
      token->written = pattern.text;
    }
    (token->normalized ? normalized_matcher_ : raw_matcher_).add(token->written, token.get());
  }
}

void TokenizerPipeline::encode(LabelledText text, bool at_start, ParseRule rule,
                               std::vector<EncodedToken>& tokens) const {
  if (auto bad = find_invalid_utf8(text.text)) throw input_error("text to tokenize is not UTF-8 at byte {}", *bad);
  auto on_text = [&](LabelledText part, bool first) {
    encode_section(std::move(part), at_start && first, rule, tokens);
  };
  cut_at_added(std::move(text), raw_matcher_, rule, on_text, [&](EncodedToken token) { tokens.push_back(token); });
}

void TokenizerPipeline::encode_section(LabelledText section, bool at_start, ParseRule rule,
                                       std::vector<EncodedToken>& tokens) const {
  if (normalizer) normalizer->apply(section);
  auto on_text = [&](LabelledText part, bool first) { encode_words(std::move(part), at_start && first, tokens); };
  cut_at_added(std::move(section), normalized_matcher_, rule, on_text,
               [&](EncodedToken token) { tokens.push_back(token); });
}

void TokenizerPipeline::encode_words(LabelledText section, bool at_start, std::vector<EncodedToken>& tokens) const {
  if (section.text.empty()) return;
  Words words;
  words.ranges.emplace_back(0, section.text.size());
  words.source = std::move(section);
  words.at_start = at_start;
  if (pre_tokenizer) pre_tokenizer->apply(words);
  std::vector<TokenPiece> pieces;
  for (auto [begin, end] : words.ranges) {
    pieces.clear();
    model->tokenize(std::string_view(words.source.text).substr(begin, end - begin), pieces);
    size_t at = begin;
    for (const auto& piece : pieces) {
      uint8_t labels = 0;
      if (words.source.labelled()) {
        for (size_t i = at; i < std::min(end, at + piece.length); ++i) labels |= words.source.labels[i];
      }
      at += piece.length;
      tokens.push_back({piece.id, labels, false, false});
    }
  }
}

bool TokenizerPipeline::has_added_token_at(std::string_view text, size_t position) const {
  size_t length = 0;
  if (position >= text.size()) return false;
  return raw_matcher_.longest_at(text, position, length) || normalized_matcher_.longest_at(text, position, length);
}

std::optional<int64_t> TokenizerPipeline::id_of(std::string_view token) const {
  if (auto added = added_by_content_.find(token); added != added_by_content_.end()) return added->second->id;
  auto id = model->vocabulary().id_of(token);
  return id ? std::optional<int64_t>(*id) : std::nullopt;
}

const std::string* TokenizerPipeline::token_of(int64_t id) const {
  const auto* added = added_token(id);
  return added ? &added->written : model->vocabulary().token_of(id);
}

const AddedToken* TokenizerPipeline::added_token(int64_t id) const {
  auto found = added_by_id_.find(id);
  return found == added_by_id_.end() ? nullptr : found->second;
}

int64_t TokenizerPipeline::vocab_size() const { return std::max(model->vocabulary().size(), largest_added_id_ + 1); }

}  // namespace vlmtune
