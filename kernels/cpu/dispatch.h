// From a tensor's type to the loop for it.
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels::cpu {

/// Whether the CPU loops take this tensor; else the plain formula serves, on every device and type.
inline bool has_loop(const torch::Tensor& x) {
  const auto type = x.scalar_type();
  return x.is_cpu() && (type == torch::kFloat || type == torch::kBFloat16 || type == torch::kHalf);
}

/// Calls f with a value of the C++ type that `type` stands for; only for types that has_loop admits.
template <typename F>
void dispatch(torch::ScalarType type, F f) {
  if (type == torch::kFloat) return f(float{});
  if (type == torch::kBFloat16) return f(c10::BFloat16{});
  return f(c10::Half{});
}

}  // namespace vlmtune::kernels::cpu
