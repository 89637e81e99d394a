// Devices with memory of their own are plugins: LibTorch's library for them and ours with their kernels are loaded when a recipe
// asks, so that the binary itself starts without them.
#pragma once
#include <torch/torch.h>

#include "lib/recipe/recipe.h"

namespace vlmtune {

/// What a plugin exports under the name "vlmtune_watch_device": from then on it reports the device's memory, by address.
using WatchDevice = void (*)(void (*allocated)(uint64_t key, int64_t bytes), void (*freed)(uint64_t key));

/// The device that the recipe's hardware names, ready to be used, with an account of its own for its memory. "npu" is LibTorch's
/// PrivateUse1: torch_npu, or the library that the environment variable VLMTUNE_NPU_LIBRARY names. Errors: usage_error that
/// says which library or device is missing.
torch::Device open_device(const Recipe& recipe);

}  // namespace vlmtune
