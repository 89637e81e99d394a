// Prompts to answers: rows of one batch, or the turns of a chat.
#pragma once
#include "lib/generate/generate.h"
#include "lib/pipeline/assemble.h"

namespace vlmtune {

struct Answer {
  std::string text;
  Generated generated;
  std::vector<int64_t> prompt_ids;  ///< as the language model sees them, image slots repeated
  int64_t image_tokens = 0;
  double first_token_seconds = 0, decode_tokens_per_second = 0;
};

/// Called with each new piece of text of a row.
using TextCallback = std::function<void(size_t row, const std::string& piece)>;

class Answerer {
 public:
  /// Keeps references: recipe, inputs and model outlive it.
  Answerer(const Recipe& recipe, const InputParts& inputs, const VlmModel& model);

  /// Decodes the rows together, padded on the left; the result is that of each row alone.
  std::vector<Answer> answer(const std::vector<Example>& prompts, const TextCallback& on_text) const;

  /// Continues a chat whose earlier tokens are in `cache` and `history`: only what is new in `prompt` is computed.
  Answer answer_turn(const Example& prompt, KvCache& cache, std::vector<int64_t>& history,
                     const TextCallback& on_text) const;

  int64_t top_logprobs = -1;  ///< see GenerationOptions

 private:
  std::vector<Answer> run(const PromptBatch& batch, const std::vector<Example>& prompts, KvCache& cache,
                          const TextCallback& on_text) const;
  const Recipe& recipe_;
  const InputParts& inputs_;
  const VlmModel& model_;
  GenerationOptions options_;
};

/// Ids that end an answer: eos_token_id of generation_config.json (one or a list) and of config.json, and the tokenizer's.
std::vector<int64_t> stop_ids(const std::filesystem::path& model_dir, const Tokenizer& tokenizer);

}  // namespace vlmtune
