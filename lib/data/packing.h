// What an optimizer step is filled with: a row for each sample, as many rows as a budget of tokens allows, or several samples in
// one row, one after the other. There each sees itself alone: attention and positions begin anew at its start (LLaMA-Factory's
// neat_packing, TRL's padding-free batches).
#pragma once
#include <optional>
#include <vector>

#include "lib/data/example.h"

namespace vlmtune {

/// Adds a sample behind those of `row`. Nothing predicts its first token, which is not trained.
void append_sample(Example& row, Example&& sample);

/// Rows of a batch are padded to a multiple of this: a ragged number of tokens costs the CPU's products a quarter of their rate.
inline constexpr int64_t kLengthMultiple = 8;
inline int64_t padded_length(int64_t tokens) {
  return (tokens + kLengthMultiple - 1) / kLengthMultiple * kLengthMultiple;
}

struct StepLimits {
  int64_t micro_batches = 1;
  int64_t rows = 1;          // of a micro-batch
  int64_t row_tokens = 0;    // samples share rows of so many tokens, first fit; 0: a row for each
  int64_t batch_tokens = 0;  // of a micro-batch, rows padded to the longest; 0: no matter
};

/// Where the samples of a step go: a function of their order alone, so that a resumed run fills its steps as the first one would.
class StepFiller {
 public:
  struct Place {
    size_t micro_batch, row;  // one there is, or a new one behind them
  };

  explicit StepFiller(const StepLimits& limits) : limits_(limits) {}

  /// For a sample of this length; nothing when the step has no room for it.
  std::optional<Place> place(int64_t tokens);

  /// Whether no sample of any length would find a place.
  bool full() const;

 private:
  bool has_room(const std::vector<int64_t>& rows, int64_t tokens) const;

  StepLimits limits_;
  std::vector<std::vector<int64_t>> lengths_;  // of each micro-batch's rows
};

}  // namespace vlmtune
