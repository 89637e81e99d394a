// A frozen linear layer and its low-rank adapter in one op (LoRA, Hu et al. 2021, arXiv 2106.09685).
#pragma once
#include "kernels/quantized.h"

namespace vlmtune::kernels {

/// The weight [out, in] of a frozen layer: whole, of its input's type, or in few bits.
struct BaseWeight {
  torch::Tensor whole;
  QuantizedPtr quantized = {};
};

/// x weightᵀ + bias, differentiable in x and in a weight that is whole.
torch::Tensor base_linear(const torch::Tensor& x, const BaseWeight& weight, const torch::Tensor& bias);

/// y = x weightᵀ + bias + scale * dropped aᵀ bᵀ: x and dropped [..., in], bias [out] or undefined, all of x's type; a [r, in] and b [out, r] of any type, cast to x's when used. `dropped` is x after dropout, or undefined where
/// there is none. The adapter's output and gradients are added where the layer's lie. Differentiable in x, dropped, a, b.
torch::Tensor lora_linear(const torch::Tensor& x, const torch::Tensor& dropped, const BaseWeight& weight,
                          const torch::Tensor& bias, const torch::Tensor& a, const torch::Tensor& b, double scale);

}  // namespace vlmtune::kernels
