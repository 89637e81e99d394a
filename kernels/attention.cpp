#include "kernels/attention.h"

namespace vlmtune::kernels {

torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, bool causal, const torch::Tensor& bias) {
  const std::optional<torch::Tensor> mask = bias.defined() ? std::optional(bias) : std::nullopt;
  return at::scaled_dot_product_attention(q, k, v, mask, 0.0, causal, std::nullopt, q.size(1) != k.size(1));
}

}  // namespace vlmtune::kernels
