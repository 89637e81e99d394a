#include "lib/models/fresh.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

namespace vlmtune {

torch::Tensor fresh_linear_values(torch::IntArrayRef shape, int64_t fan_in, const std::string& name, int64_t seed,
                                  torch::Device device) {
  if (device.is_meta()) return torch::empty(shape, device);
  uint64_t hash = 1469598103934665603ULL ^ static_cast<uint64_t>(seed);  // FNV-1a: the same values in every build
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return torch::empty(shape, torch::kFloat).uniform_(-bound, bound, at::detail::createCPUGenerator(hash)).to(device);
}

}  // namespace vlmtune
