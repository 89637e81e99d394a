// bitsandbytes' "dynamic" 8-bit numbers (Dettmers 2015, arXiv 1511.04561).
#pragma once
#include <torch/torch.h>

#include "kernels/cpu/dynamic_codes.h"

namespace vlmtune::kernels {

/// fp32 [256], ascending: in [-1, 1] with sign, in [0, 1] without.
const torch::Tensor& dynamic_values(bool has_sign);

/// The same and the way back, for the CPU's loops.
cpu::DynamicCodes dynamic_codes(bool has_sign);

}  // namespace vlmtune::kernels
