// Devices with memory of their own are plugins: LibTorch's library for them and ours with their kernels are loaded when a recipe
// asks, so that the binary itself starts without them.
#pragma once
#include <torch/torch.h>

#include <filesystem>

#include "lib/recipe/recipe.h"

namespace vlmtune {

/// What a plugin exports. "vlmtune_watch_device": from then on it reports the device's memory, by address.
using WatchDevice = void (*)(void (*allocated)(uint64_t key, int64_t bytes), void (*freed)(uint64_t key));
/// "vlmtune_device_statistics": what its allocator says, in the order of AllocatorStatistics.
using DeviceStatistics = void (*)(int64_t statistics[4]);
/// "vlmtune_snapshot_when_full": when memory runs out, the file gets the allocator's segments and blocks (JSON).
using SnapshotWhenFull = void (*)(const char* file);

/// The device that the recipe's hardware names, ready to be used, with an account of its own for its memory. "npu" is LibTorch's
/// PrivateUse1: torch_npu, or the library that the environment variable VLMTUNE_NPU_LIBRARY names. Errors: usage_error that
/// says which library or device is missing.
torch::Device open_device(const Recipe& recipe);

/// Where a device's plugin can: when its memory runs out, this file says what lay in it.
void snapshot_device_when_full(const std::filesystem::path& file);

}  // namespace vlmtune
