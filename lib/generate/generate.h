// Decoding with a KV cache: prefill once, then a token at a time for all rows of a batch.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "lib/generate/sampler.h"
#include "lib/models/vlm/model.h"

namespace vlmtune {

struct GenerationOptions {
  int64_t max_new_tokens = 512;
  SamplingOptions sampling;
  std::vector<int64_t> stop_ids;  ///< any of them ends an answer
  int64_t vocab_limit = 0;        ///< ids at or above are never chosen
  bool all_logits = false;        ///< of every position of the prompt, as other programs make them
  int64_t top_logprobs = -1;      ///< alternatives to report for each token; -1: no log-probabilities at all
  torch::ScalarType compute_type = torch::kFloat;
};

struct TokenLogprob {
  int64_t id = 0;
  double logprob = 0;                           ///< of the model's own distribution, in nats
  std::vector<std::pair<int64_t, double>> top;  ///< best first
};

struct Generated {
  std::vector<int64_t> tokens;  ///< without the stop token
  std::vector<TokenLogprob> logprobs;
  bool stopped = false;  ///< by a stop token or the callback; else by length
};

/// Prompts of one or more rows, padded on the left.
struct PromptBatch {
  Tensor ids;  // [B, T] int64
  ImageInputs images;
  std::vector<int64_t> left_padding;  // [B]
  Tensor positions = {};  ///< as VlmModel::positions; undefined: tokens are counted on from those in the cache
};

/// Called for every new token; false ends that row.
using TokenCallback = std::function<bool(size_t row, int64_t id)>;

/// Answers for all rows. `cache` holds the tokens before the prompt (chat), or is empty; afterwards it holds prompt and
/// answer but for the last token.
std::vector<Generated> generate(const VlmModel& model, const PromptBatch& prompt, KvCache& cache,
                                const GenerationOptions& options, const TokenCallback& on_token);

}  // namespace vlmtune
