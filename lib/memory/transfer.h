// Between the host, where data-dependent sizes are decided, and the device that computes.
#pragma once
#include <torch/torch.h>

namespace vlmtune {

/// A host tensor on `device`. In a dry run that stands for the CPU, where the tensor would stay where it is, the copy
/// counts only when it takes the place of a temporary one.
torch::Tensor to_device(const torch::Tensor& host, torch::Device device);
torch::Tensor to_device(torch::Tensor&& host, torch::Device device);

/// A device tensor's values on the host. A dry run has none and gets zeros.
torch::Tensor to_host(const torch::Tensor& x);

}  // namespace vlmtune
