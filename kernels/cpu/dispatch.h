// From a tensor's type to the loop for it.
#pragma once
#include <torch/torch.h>

#include "kernels/device.h"

namespace vlmtune::kernels::cpu {

/// Whether the CPU loops take this tensor; else the plain formula serves, on every device and type.
inline bool has_loop(const torch::Tensor& x) {
  const auto type = x.scalar_type();
  return kernel_device(x) == torch::kCPU && (type == torch::kFloat || type == torch::kBFloat16 || type == torch::kHalf);
}

/// Whether one kernel computes the op: a CPU loop, or the CUDA plugin's, for which a meta tensor may stand.
inline bool has_fused_kernel(const torch::Tensor& x) {
  return has_loop(x) || (x.is_meta() && kernel_device(x) == torch::kCUDA && x.scalar_type() != torch::kDouble);
}

/// Calls f with a value of the C++ type of x, one that has_loop admits.
template <typename F>
void dispatch_type(const torch::Tensor& x, F f) {
  if (x.scalar_type() == torch::kFloat) return f(float{});
  if (x.scalar_type() == torch::kBFloat16) return f(c10::BFloat16{});
  return f(c10::Half{});
}

/// The same unless x is a meta tensor, which holds nothing to loop over: what was allocated around the loop is all that a
/// dry run wants.
template <typename F>
void dispatch(const torch::Tensor& x, F f) {
  if (!x.is_meta()) dispatch_type(x, f);
}

}  // namespace vlmtune::kernels::cpu
