// Batches for training: rows in the epoch's order, built by worker threads ahead of time within a byte limit,
// handed out as one optimizer step at a time. What comes out does not depend on the number of workers.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lib/data/dataset.h"
#include "lib/data/example.h"
#include "lib/data/order.h"

namespace vlmtune {

using MicroBatch = std::vector<Example>;  // rows

/// What one optimizer step trains on.
struct StepBatch {
  int64_t epoch = 0;           // from 0
  int64_t position_after = 0;  // in the epoch's order, after this step's last row: what seek() wants
  std::vector<MicroBatch> micro;
  int64_t samples = 0, tokens = 0, image_tokens = 0, label_tokens = 0;  // sums over the step
};

/// The loader builds so many optimizer steps ahead at most: more would only take memory and, on a CPU device, time from the
/// step under way.
inline constexpr int64_t kStepsAhead = 2;

struct LoaderOptions {
  int64_t micro_batch_size = 1;  // rows
  /// Micro-batches take rows while these, padded to the longest, have at most so many tokens, in place of micro_batch_size; 0: no.
  int64_t micro_batch_tokens = 0;
  /// Rows hold as many samples as fit into the builder's max_length (lib/data/packing.h).
  bool packing = false;
  /// Micro-batches of optimizer step `step` (from 0, counted over the whole run).
  std::function<int(int64_t step)> accumulation = [](int64_t) { return 1; };
  uint64_t seed = 42;
  bool shuffle = true;
  bool group_by_modality_length = false;  // blocks are as large as step 0
  int num_workers = 2;                    // 0 builds in next()
  int64_t prefetch_bytes = 256 << 20;     // finished samples waiting; at least one is always let through
  double bad_sample_budget = 0.01;        // of the data set's rows
  int64_t num_epochs = -1;                // next() ends after so many; -1 goes on for ever
};

/// What happened so far; rows that gave no sample are counted once.
struct LoaderCounts {
  int64_t bad = 0;          // damaged rows and pictures
  int64_t no_labels = 0;    // nothing to train on
  int64_t too_long = 0;     // left out by OverLength::kDrop
  int64_t ready_bytes = 0;  // the most that finished samples took while they waited
};

/// Bad rows are skipped and named once by log_warning; the next row of the order takes their slot. Bad rows and rows
/// without labels count against the budget, rows that are too long do not.
/// next, seek and counts are for one thread.
class BatchLoader {
 public:
  /// `builder` outlives the loader.
  BatchLoader(Dataset dataset, const ExampleBuilder& builder, LoaderOptions options);
  ~BatchLoader();

  /// The next optimizer step; nothing after num_epochs. The rows left at an epoch's end make a smaller step of their own.
  /// Errors: input_error when the budget is spent or an epoch has no usable row at all; others from building a sample.
  std::optional<StepBatch> next();

  /// Continues as a run did that had taken the step with this epoch and position_after, its `step + 1`-th.
  /// seek(0, 0, 0) is the start.
  void seek(int64_t epoch, int64_t position, int64_t step);

  /// Steps of `epochs` whole epochs from the start, with the accumulation of each step; assumes that no row is skipped.
  /// Where samples' lengths matter (packing, micro_batch_tokens), every row of the data is measured the first time; rows whose pictures are damaged count here alone.
  int64_t total_steps(int64_t epochs) const;

  LoaderCounts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vlmtune
