#include "lib/nn/norm.h"

#include "kernels/rms_norm.h"
#include "lib/nn/linear.h"

namespace vlmtune {

RmsNorm::RmsNorm(int64_t size, double epsilon) : weight(declared({size})), eps(epsilon) {}

Tensor RmsNorm::forward(const Tensor& x) const { return kernels::rms_norm(x, weight, eps); }

void RmsNorm::visit(const std::string& name, const TensorVisitor& visitor) { visitor(name + ".weight", weight); }

LayerNorm::LayerNorm(int64_t size, double epsilon) : weight(declared({size})), bias(declared({size})), eps(epsilon) {}

Tensor LayerNorm::forward(const Tensor& x) const {
  const auto type = x.scalar_type();  // LibTorch's kernel accumulates in fp32
  return torch::layer_norm(x, {weight.size(0)}, weight.to(type), bias.to(type), eps);
}

void LayerNorm::visit(const std::string& name, const TensorVisitor& visitor) {
  visitor(name + ".weight", weight);
  visitor(name + ".bias", bias);
}

}  // namespace vlmtune
