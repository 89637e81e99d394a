// LibTorch's allocations on the CPU and the meta device, written into ledgers.
#pragma once
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "lib/memory/ledger.h"

namespace vlmtune {

/// What a device's own allocator says of itself, in bytes.
struct AllocatorStatistics {
  int64_t allocated_peak = 0;  ///< of tensors
  int64_t reserved = 0, reserved_peak = 0;
  int64_t in_use = 0;  ///< of the whole device: what the allocator reserved, the context, libraries, other programs
};

/// The accounts of a process: of the device that computes and of the host; one and the same when the CPU computes.
struct MemoryAccounts {
  std::shared_ptr<MemoryLedger> device, host;
  std::function<AllocatorStatistics()> statistics = {};  ///< where the device has an allocator that keeps them
};

/// Routes LibTorch's CPU and meta allocations through the accounts. Call once, before the first tensor is made.
void track_allocations();

/// What is counted from here on. At first both accounts are one ledger, that of the CPU.
void set_memory_accounts(MemoryAccounts accounts);
const MemoryAccounts& memory_accounts();

/// Says what the memory of a tensor is for after it was made, e.g. that it became a gradient, and of the current module.
void claim_memory(const torch::Tensor& tensor, MemoryCategory category);

/// Enters a phase in both accounts; returns the one before.
std::string enter_memory_phase(std::string_view name);

}  // namespace vlmtune
