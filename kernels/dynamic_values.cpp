#include "kernels/dynamic_values.h"

#include <cmath>

namespace vlmtune::kernels {
namespace {

torch::Tensor make(bool has_sign) {
  std::vector<torch::Tensor> parts;
  for (int exponent = 0; exponent < 7; ++exponent) {
    const auto bounds = torch::linspace(0.1, 1, (has_sign ? 1 << exponent : 2 << exponent) + 1, torch::kFloat);
    const auto values = (bounds.slice(0, 0, -1) + bounds.slice(0, 1)) / 2.0 * std::pow(10.0, exponent - 6);
    parts.push_back(values);
    if (has_sign) parts.push_back(-values);
  }
  parts.push_back(torch::tensor({0.0f, 1.0f}));
  return std::get<0>(torch::cat(parts).sort());
}

}  // namespace

const torch::Tensor& dynamic_values(bool has_sign) {
  static const torch::Tensor with_sign = make(true), without = make(false);
  return has_sign ? with_sign : without;
}

}  // namespace vlmtune::kernels
