// What a checkpoint of a run holds beside what users take away: everything needed to go on bit for bit.
#pragma once
#include <filesystem>

#include "lib/optim/loss_scaler.h"
#include "lib/optim/optimizer.h"

namespace vlmtune {

/// Where a run stands. Random numbers need no state: they are a function of seed, step and micro-batch.
struct RunPosition {
  int64_t step = 0;      ///< optimizer steps done
  int64_t epoch = 0;     ///< of the data
  int64_t position = 0;  ///< in the epoch's order
};

/// Writes trained.safetensors, optimizer.safetensors and state.json into `dir`. Errors: io_error.
void save_run_state(const std::filesystem::path& dir, const RunPosition& position, const Optimizer& optimizer,
                    const LossScaler& scaler);

/// Puts them back into the optimizer's tensors, its moments and the scaler. Errors: input_error naming the tensor that
/// does not fit, which means that the recipe has changed what is trained.
RunPosition load_run_state(const std::filesystem::path& dir, Optimizer& optimizer, LossScaler& scaler);

}  // namespace vlmtune
