// Depthwise convolution: every channel has a kernel of its own (ConvNeXt, Liu et al. 2022, arXiv 2201.03545).
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// x [N, H, W, C], weight [C, 1, k, k] with odd k, bias [C], all of one type -> [N, H, W, C]: stride 1, zeros around the
/// picture, sums in fp32. Keeps x for the weight's gradient alone. Differentiable in all three.
torch::Tensor depthwise_conv(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace vlmtune::kernels
