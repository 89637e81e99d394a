// Rotates pairs of channels by a position's angle (Su et al. 2021, arXiv 2104.09864), in the half-split order of Llama.
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// x [B, H, T, d]; cos and sin [B or 1, 1, T, d] -> x * cos + rotate_half(x) * sin, of x's type. Keeps only the tables
/// for backward, which is the rotation by the opposite angle.
torch::Tensor rope(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin);

}  // namespace vlmtune::kernels
