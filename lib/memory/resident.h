// Memory of the whole process, as the system counts it.
#pragma once
#include <cstdint>

namespace vlmtune {

/// Resident memory of the process now, and its peak (VmRSS and VmHWM).
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace vlmtune
