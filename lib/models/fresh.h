// Initial values of new weights.
#pragma once
#include <torch/torch.h>

#include <string>

namespace vlmtune {

/// fp32 values from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), torch.nn.Linear's own, by the seed and the name alone: the same
/// whatever else is made before. Drawn on the host and moved to `device`; a dry run draws nothing.
torch::Tensor fresh_linear_values(torch::IntArrayRef shape, int64_t fan_in, const std::string& name, int64_t seed,
                                  torch::Device device);

}  // namespace vlmtune
