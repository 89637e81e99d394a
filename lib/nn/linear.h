// Linear layer, with an optional low-rank adapter (LoRA, Hu et al. 2021, arXiv 2106.09685).
#pragma once
#include <memory>

#include "kernels/quantized.h"
#include "lib/nn/types.h"

namespace vlmtune {

/// y += scale * dropout(x) Aᵀ Bᵀ. A and B are kept in fp32 and cast to x's type when used, as PEFT does.
struct Lora {
  Tensor a;  // [r, in]
  Tensor b;  // [out, r]
  double scale = 1;
  double dropout = 0;
};

struct Linear {
  int64_t in_features = 0, out_features = 0;
  Tensor weight;                    // [out, in]
  kernels::QuantizedPtr quantized;  // in place of `weight`
  Tensor bias;                      // [out], undefined without bias
  std::unique_ptr<Lora> lora;

  Linear() = default;
  /// Shapes only: tensors are on the meta device until weights are loaded.
  Linear(int64_t in, int64_t out, bool with_bias);

  /// x [..., in] -> [..., out] in x's type. `training` switches LoRA's dropout on.
  Tensor forward(const Tensor& x, bool training = false) const;
  torch::Device device() const { return quantized ? quantized->codes.device() : weight.device(); }
  /// Shows weight (unless it is quantised), bias, and the adapter as PEFT names it (lora_A.weight, lora_B.weight).
  void visit(const std::string& name, const TensorVisitor& visitor);
};

/// A tensor without memory that stands for a weight to be loaded.
Tensor declared(torch::IntArrayRef shape);

}  // namespace vlmtune
