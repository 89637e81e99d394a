#include "lib/nn/linear.h"

#include "kernels/dropout.h"
#include "kernels/lora_linear.h"
#include "lib/memory/scope.h"

namespace vlmtune {

Tensor declared(torch::IntArrayRef shape) {
  const UncountedScope no_memory;
  return torch::empty(shape, torch::TensorOptions(torch::kMeta).dtype(torch::kFloat));
}

Linear::Linear(int64_t in, int64_t out, bool with_bias) : in_features(in), out_features(out) {
  weight = declared({out, in});
  if (with_bias) bias = declared({out});
}

Tensor Linear::forward(const Tensor& x, bool training) const {
  const auto type = x.scalar_type();
  const auto own_bias = bias.defined() ? bias.to(type) : bias;
  const kernels::BaseWeight base{quantized ? Tensor() : weight.to(type), quantized};
  if (lora) {
    const auto dropped = training && lora->dropout > 0 ? kernels::dropout(x, lora->dropout) : Tensor();
    return kernels::lora_linear(x, dropped, base, own_bias, lora->a, lora->b, lora->scale);  // [..., out]
  }
  return kernels::base_linear(x, base, own_bias);
}

void Linear::visit(const std::string& name, const TensorVisitor& visitor) {
  if (!quantized) visitor(name + ".weight", weight);
  if (bias.defined()) visitor(name + ".bias", bias);
  if (lora) {
    visitor(name + ".lora_A.weight", lora->a);
    visitor(name + ".lora_B.weight", lora->b);
  }
}

}  // namespace vlmtune
