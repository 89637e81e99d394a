// Dropout (Srivastava et al. 2014).
#pragma once
#include <torch/torch.h>

#include "kernels/device.h"

namespace vlmtune::kernels {

/// x with a share `p` of its values set to 0 and the others divided by 1 - p. CUDA's fused kernel is named, which LibTorch
/// chooses there by itself, so that a dry run takes it too.
inline torch::Tensor dropout(const torch::Tensor& x, double p) {
  return kernel_device(x) == torch::kCUDA ? std::get<0>(at::native_dropout(x, p, true)) : torch::dropout(x, p, true);
}

}  // namespace vlmtune::kernels
