// Text to token ids and back, equal to transformers' AutoTokenizer (5.17) on the same folder.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/prompt.h"

namespace vlmtune {

class DecodeStream;
class TokenizerPipeline;

struct Encoding {
  std::vector<int64_t> ids;      ///< kImageSlot at each image
  std::vector<uint8_t> trained;  ///< 1 where the token is a label: it overlaps an answer, or ends one
  int open_answers = 0;          ///< answers that no end-of-turn token follows
};

struct PromptOptions {
  bool add_bos = false;               ///< BOS in front, unless the prompt already begins with it
  bool end_answers_with_eos = false;  ///< EOS after each answer for which the template writes no end-of-turn token
};

/// The tokenizer of a checkpoint. Immutable and safe to share between threads.
class Tokenizer {
 public:
  /// Reads tokenizer.json, else tokenizer.model (sentencepiece), with tokenizer_config.json, special_tokens_map.json
  /// and added_tokens.json beside it. Errors: input_error with file and JSON pointer.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& model_dir);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Ids as HF gives them with add_special_tokens=False. `parse_added_tokens`: literals such as "</s>" become their
  /// token; otherwise they are ordinary text. Errors: input_error when the text is not UTF-8.
  std::vector<int64_t> encode(std::string_view text, bool parse_added_tokens) const;

  /// Encodes the spans as one string; images split it as an added token would. Added tokens are parsed inside control
  /// text only, marks of boxes everywhere. A token is trained when any byte of it comes from an answer, or when it is the added token that follows
  /// an answer in the template's text (white space between the two is not trained).
  Encoding encode_prompt(const std::vector<PromptSpan>& spans, const PromptOptions& options) const;
  Encoding encode_prompt(const std::vector<PromptSpan>& spans, bool add_bos) const;

  /// True when an end-of-turn token follows every answer; otherwise a model trained on these spans never learns to
  /// stop unless `end_answers_with_eos` is set.
  bool ends_answers(const std::vector<PromptSpan>& spans) const;

  /// = HF decode(clean_up_tokenization_spaces=False). Unknown ids and image slots give nothing.
  std::string decode(std::span<const int64_t> ids, bool skip_special) const;

  std::optional<int64_t> id_of(std::string_view token) const;
  /// The token as the vocabulary writes it ("" for an unknown id).
  std::string token_of(int64_t id) const;
  bool is_special(int64_t id) const;
  bool is_box_mark(int64_t id) const;
  /// 1 + the largest id. A model may have more rows; those are never sampled.
  int64_t vocab_size() const;

  std::optional<int64_t> bos_id() const;
  std::optional<int64_t> eos_id() const;
  std::optional<int64_t> pad_id() const;
  std::optional<int64_t> unk_id() const;
  /// Whether HF puts BOS in front (EOS behind) with add_special_tokens=True.
  bool adds_bos() const;
  bool adds_eos() const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<TokenizerPipeline> pipeline);
  std::unique_ptr<TokenizerPipeline> pipeline_;
};

/// Decodes ids one by one; the pieces put together equal decode(), but that marks of boxes are never left out. Only whole
/// UTF-8 characters come out.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  std::string push(int64_t id);
  /// What was held back; afterwards the decoder starts anew.
  std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace vlmtune
