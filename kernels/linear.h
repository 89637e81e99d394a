// y = x weightᵀ + bias.
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// x [..., in], weight [out, in], bias [out] or undefined, all of one type -> [..., out]. Without gradients and for a few
/// rows (decoding) the CPU reads each weight once; otherwise it is LibTorch's matrix product.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace vlmtune::kernels
