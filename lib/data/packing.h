// Several samples in one row of a batch, one after the other. Each sees itself alone: attention and positions begin anew at
// its start (LLaMA-Factory's neat_packing, TRL's padding-free batches).
#pragma once
#include <optional>

#include "lib/data/example.h"

namespace vlmtune {

/// Adds a sample behind those of `row`. Nothing predicts its first token, which is not trained.
void append_sample(Example& row, Example&& sample);

/// First fit: a sample goes into the first row of the step that has room. A function of the samples' order alone, so that a
/// resumed run packs what the first one would have.
class RowPacker {
 public:
  /// Rows of at most `row_tokens`; 0: a row for each sample.
  RowPacker(int64_t max_rows, int64_t row_tokens) : max_rows_(max_rows), row_tokens_(row_tokens) {}

  /// The row that takes a sample of this length: one there is, or a new one behind them; nothing when the step is full.
  std::optional<size_t> place(int64_t tokens);

  /// Whether no sample of any length would find a place.
  bool full() const { return row_tokens_ == 0 && static_cast<int64_t>(lengths_.size()) == max_rows_; }

 private:
  int64_t max_rows_, row_tokens_;
  std::vector<int64_t> lengths_;
};

}  // namespace vlmtune
