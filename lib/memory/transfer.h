// Between the host, where data-dependent sizes are decided, and the device that computes.
#pragma once
#include <torch/torch.h>

namespace vlmtune {

/// A host tensor on `device`. In a dry run that stands for the CPU, where the tensor would stay where it is, the copy
/// counts only when it takes the place of a temporary one.
torch::Tensor to_device(const torch::Tensor& host, torch::Device device);
torch::Tensor to_device(torch::Tensor&& host, torch::Device device);

/// A tensor for values that the host keeps for a device: pinned, so that copies need not be waited for. In a dry run a meta
/// tensor that counts as the host's.
torch::Tensor empty_on_host(torch::IntArrayRef shape, torch::ScalarType type, torch::Device device);

/// A copy that the host keeps, and a copy of that on the device.
torch::Tensor stow(const torch::Tensor& x);
torch::Tensor fetch(const torch::Tensor& stowed, torch::Device device);

/// A device tensor's values on the host. A dry run has none and gets zeros.
torch::Tensor to_host(const torch::Tensor& x);

}  // namespace vlmtune
