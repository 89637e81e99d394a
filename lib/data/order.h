// The order of rows in an epoch: a pure function of (data set, seed, epoch), so that resuming needs two numbers.
#pragma once
#include <cstdint>
#include <vector>

#include "lib/data/dataset.h"

namespace vlmtune {

struct OrderOptions {
  uint64_t seed = 42;
  bool shuffle = true;
  /// LLaVA's sampler: blocks of `group_size` rows (one optimizer step), each of rows with pictures or of rows without,
  /// sorted by length inside and spread evenly over its `num_chunks` micro-batches; the blocks are shuffled, the odd
  /// ones left over come last.
  bool group_by_modality_length = false;
  int64_t group_size = 1;
  int64_t num_chunks = 1;
};

/// Row numbers in the order they are visited in `epoch` (from 0). A file's weight repeats its rows; the fraction is a
/// random choice that differs by epoch.
std::vector<uint32_t> epoch_order(const Dataset& dataset, const OrderOptions& options, int64_t epoch);

/// Rows in an epoch: the length of epoch_order.
int64_t epoch_rows(const Dataset& dataset);

}  // namespace vlmtune
