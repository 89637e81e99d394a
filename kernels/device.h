// Which device's kernels a tensor's operations stand for.
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// A dry run on the meta device allocates what the kernels of another device would: this says which (at first the CPU's).
void set_traced_device(torch::DeviceType type);

/// The tensor's own device, or the traced one when it is a meta tensor.
torch::DeviceType kernel_device(const torch::Tensor& x);
torch::DeviceType kernel_device(torch::Device device);

/// The generator of the device's random numbers (dropout), a dry run's being the CPU's.
at::Generator generator_of(torch::Device device);
/// From here on random numbers of the CPU and of the device follow from `seed`.
void seed_generators(uint64_t seed, torch::Device device);

}  // namespace vlmtune::kernels
