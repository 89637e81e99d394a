// silu(gate) * up (Shazeer 2020, arXiv 2002.05202).
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// gate, up [...] of one type -> [...]. Keeps gate and up only; silu(gate) is computed again in backward.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);

}  // namespace vlmtune::kernels
