// Copies between the host and a device, as an operator of their own so that a dry run sees what crosses the link.
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// to = from, of one shape, on two sides of the link. Does not wait where the host's memory is pinned.
void copy_across(const torch::Tensor& to, const torch::Tensor& from);

}  // namespace vlmtune::kernels
