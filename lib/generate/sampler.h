// Chooses the next token from logits: greedy, or sampled after temperature, top-k and top-p (Holtzman et al. 2019,
// arXiv 1904.09751), with transformers' order of the steps.
#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace vlmtune {

struct SamplingOptions {
  double temperature = 0;  ///< 0: greedy
  double top_p = 1;
  int64_t top_k = 0;              ///< 0: off
  double repetition_penalty = 1;  ///< of ids in the prompt and the answer so far (Keskar et al. 2019, arXiv 1909.05858)
  uint64_t seed = 42;
};

/// One per row: rows draw from generators of their own, so that a batch gives what single runs give.
class Sampler {
 public:
  Sampler(const SamplingOptions& options, uint64_t row)
      : options_(options), random_(options.seed * 0x9E3779B97F4A7C15ULL + row) {}

  /// logits [V] of one row; ids at or above `vocab_limit` are never chosen; `seen` are the ids so far.
  int64_t choose(std::span<const float> logits, int64_t vocab_limit, std::span<const int64_t> seen);

 private:
  int64_t draw(std::vector<float>& scores);
  SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace vlmtune
