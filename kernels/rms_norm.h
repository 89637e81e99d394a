// y = weight * cast(x / sqrt(mean(x²) + eps)), as in Llama (Zhang & Sennrich 2019, arXiv 1910.07467).
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// x [..., D] of fp32, bf16 or fp16; weight [D]. Statistics in fp32; the normalised values are rounded to x's type before
/// the weight multiplies them. Keeps x and one fp32 number a row for backward. Differentiable in x and weight.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);

}  // namespace vlmtune::kernels
