// Counts what LibTorch allocates on the CPU device.
#pragma once
#include <cstdint>

namespace vlmtune {

/// Routes every CPU allocation of LibTorch through a counter. Call once, before the first tensor is made.
void track_cpu_allocations();

/// Bytes allocated now, and the most since the last reset.
int64_t cpu_allocated_bytes();
int64_t cpu_peak_bytes();
void reset_cpu_peak();

/// Resident memory of the process now, and its peak (VmRSS and VmHWM).
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace vlmtune
