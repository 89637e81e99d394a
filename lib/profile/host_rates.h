// What this machine's processor does per second, measured.
#pragma once
#include "lib/profile/roofline.h"

namespace vlmtune {

/// The rates of matrix products by precision and of copies in memory, with LibTorch's threads. Measured once, in about a
/// tenth of a second.
const DeviceRates& host_rates();

}  // namespace vlmtune
