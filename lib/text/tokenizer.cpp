#include "lib/text/tokenizer.h"

#include "lib/base/errors.h"
#include "lib/text/pipeline.h"
#include "lib/text/tokenizer_files.h"
#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

/// A prompt as text between things that have their id already.
struct PromptItem {
  LabelledText text;
  std::optional<int64_t> id;  // an image slot or an EOS that we add
};

struct PromptItems {
  std::vector<PromptItem> items;
  int open_answers = 0;
};

bool is_blank_at(std::string_view text, size_t& position) {
  size_t next = position;
  if (!is_white_space(next_code_point(text, next))) return false;
  position = next;
  return true;
}

uint8_t label_of(SpanKind kind) {
  return kind == SpanKind::kControl ? kControlByte : kind == SpanKind::kAnswer ? kAnswerByte : 0;
}

/// Looks behind an answer that ends at `end`: marks where an added token follows in control text. False without one.
bool mark_end_of_turn(const TokenizerPipeline& pipeline, LabelledText& text, size_t end) {
  size_t at = end;
  auto is_control = [&] { return at < text.text.size() && (text.labels[at] & kControlByte); };
  while (is_control() && !pipeline.has_added_token_at(text.text, at)) {
    if (!is_blank_at(text.text, at)) return false;
  }
  if (!is_control()) return false;
  text.labels[at] |= kEndOfTurnByte;
  return true;
}

/// Joins the spans, cut at images, and cares for the end of each answer.
PromptItems lay_out(const TokenizerPipeline& pipeline, const std::vector<PromptSpan>& spans,
                    std::optional<int64_t> eos) {
  PromptItems result;
  LabelledText text;
  std::vector<size_t> answer_ends;
  auto close_text = [&] {
    size_t done = 0;
    auto emit = [&](size_t end) {
      if (end == done) return;
      auto cut = [&](auto& all) {
        return std::decay_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(done),
                                           all.begin() + static_cast<std::ptrdiff_t>(end));
      };
      result.items.push_back({{cut(text.text), cut(text.labels)}, std::nullopt});
      done = end;
    };
    for (size_t end : answer_ends) {
      if (mark_end_of_turn(pipeline, text, end)) continue;
      if (!eos)
        ++result.open_answers;
      else
        emit(end), result.items.push_back({{}, eos});
    }
    emit(text.text.size());
    text = {}, answer_ends.clear();
  };
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto& span = spans[i];
    if (span.kind == SpanKind::kImage || span.kind == SpanKind::kVideo) {
      close_text();
      result.items.push_back({{}, span.kind == SpanKind::kImage ? kImageSlot : kVideoSlot});
      continue;
    }
    text.append(span.text, label_of(span.kind), true);
    bool more_of_it_later = false;  // a template may write an answer in several pieces
    for (size_t j = i + 1; j < spans.size() && !more_of_it_later; ++j) {
      more_of_it_later = spans[j].kind == SpanKind::kAnswer && spans[j].turn == span.turn;
    }
    if (span.kind == SpanKind::kAnswer && !more_of_it_later) answer_ends.push_back(text.text.size());
  }
  close_text();
  return result;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TokenizerPipeline> pipeline) : pipeline_(std::move(pipeline)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& model_dir) {
  return std::shared_ptr<const Tokenizer>(new Tokenizer(load_tokenizer_files(model_dir)));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text, bool parse_added_tokens) const {
  std::vector<EncodedToken> tokens;
  pipeline_->encode({std::string(text), {}}, true, parse_added_tokens ? ParseRule::kEverywhere : ParseRule::kNowhere,
                    tokens);
  std::vector<int64_t> ids;
  ids.reserve(tokens.size());
  for (const auto& token : tokens) ids.push_back(token.id);
  return ids;
}

Encoding Tokenizer::encode_prompt(const std::vector<PromptSpan>& spans, bool add_bos) const {
  return encode_prompt(spans, PromptOptions{.add_bos = add_bos});
}

Encoding Tokenizer::encode_prompt(const std::vector<PromptSpan>& spans, const PromptOptions& options) const {
  auto layout = lay_out(*pipeline_, spans, options.end_answers_with_eos ? eos_id() : std::nullopt);
  Encoding encoding;
  encoding.open_answers = layout.open_answers;
  auto emit = [&](int64_t id, bool trained) {
    encoding.ids.push_back(id);
    encoding.trained.push_back(trained);
  };
  std::vector<EncodedToken> tokens;
  for (size_t i = 0; i < layout.items.size(); ++i) {
    auto& item = layout.items[i];
    if (item.id) {
      emit(*item.id, *item.id >= 0);
      continue;
    }
    tokens.clear();
    pipeline_->encode(std::move(item.text), i == 0, ParseRule::kControlOnly, tokens);
    for (const auto& token : tokens) emit(token.id, (token.labels & kAnswerByte) || token.ends_turn);
  }
  auto bos = bos_id();
  if (options.add_bos && bos && (encoding.ids.empty() || encoding.ids.front() != *bos)) {
    encoding.ids.insert(encoding.ids.begin(), *bos);
    encoding.trained.insert(encoding.trained.begin(), 0);
  }
  return encoding;
}

bool Tokenizer::ends_answers(const std::vector<PromptSpan>& spans) const {
  return lay_out(*pipeline_, spans, std::nullopt).open_answers == 0;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special) const {
  DecodeStream stream(pipeline_->decoder);
  std::string text;
  for (auto id : ids) {
    const auto* token = pipeline_->token_of(id);
    if (token && !(skip_special && is_special(id))) stream.push(*token, text);
  }
  stream.finish(text);
  return text;
}

std::optional<int64_t> Tokenizer::id_of(std::string_view token) const { return pipeline_->id_of(token); }

std::string Tokenizer::token_of(int64_t id) const {
  const auto* token = pipeline_->token_of(id);
  return token ? *token : "";
}

bool Tokenizer::is_special(int64_t id) const {
  const auto* added = pipeline_->added_token(id);
  return added && added->special;
}

bool Tokenizer::is_box_mark(int64_t id) const {
  const auto* added = pipeline_->added_token(id);
  return added && added->box_mark;
}

int64_t Tokenizer::vocab_size() const { return pipeline_->vocab_size(); }

namespace {
std::optional<int64_t> id_of_special(const TokenizerPipeline& pipeline, const std::optional<std::string>& token) {
  return token ? pipeline.id_of(*token) : std::nullopt;
}
}  // namespace

std::optional<int64_t> Tokenizer::bos_id() const { return id_of_special(*pipeline_, pipeline_->bos_token); }
std::optional<int64_t> Tokenizer::eos_id() const { return id_of_special(*pipeline_, pipeline_->eos_token); }
std::optional<int64_t> Tokenizer::pad_id() const { return id_of_special(*pipeline_, pipeline_->pad_token); }
std::optional<int64_t> Tokenizer::unk_id() const { return id_of_special(*pipeline_, pipeline_->unk_token); }
bool Tokenizer::adds_bos() const { return pipeline_->adds_bos && bos_id(); }
bool Tokenizer::adds_eos() const { return pipeline_->adds_eos && eos_id(); }

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)),
      skip_special_(skip_special),
      stream_(std::make_unique<DecodeStream>(tokenizer_->pipeline_->decoder)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int64_t id) {
  std::string out;
  const auto* token = tokenizer_->pipeline_->token_of(id);
  const bool skipped = skip_special_ && tokenizer_->is_special(id) && !tokenizer_->is_box_mark(id);
  if (token && !skipped) stream_->push(*token, out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  stream_->finish(out);
  stream_ = std::make_unique<DecodeStream>(tokenizer_->pipeline_->decoder);
  return out;
}

}  // namespace vlmtune
