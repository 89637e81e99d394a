#include "kernels/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<Tensor> optional(const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

/// [B, K, T, d] in fp32 with each head repeated for its group of queries.
Tensor widen(const Tensor& x, int64_t groups) {
  const auto wide = x.to(torch::kFloat);
  return groups == 1 ? wide : wide.repeat_interleave(groups, 1);
}

/// The gradient of a repeated head is the sum over its group.
Tensor narrow_heads(const Tensor& gradient, int64_t groups, torch::ScalarType type) {
  const auto g = groups == 1 ? gradient : gradient.unflatten(1, {gradient.size(1) / groups, groups}).sum(2);
  return g.to(type);
}

/// Attention of 16-bit tensors on the CPU, computed in fp32 from tensors kept in 16 bits. LibTorch's 16-bit kernel makes
/// a oneDNN product of every small block, whose set-up costs more than its arithmetic.
struct WideAttention : torch::autograd::Function<WideAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                        const std::optional<Tensor>& bias) {
    const int64_t groups = q.size(1) / k.size(1);
    const auto mask = bias ? bias->to(torch::kFloat) : Tensor();
    const auto [wide, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        q.to(torch::kFloat), widen(k, groups), widen(v, groups), 0.0, causal, optional(mask));
    const auto y = wide.to(q.scalar_type());
    context->save_for_backward({q, k, v, y, log_sum, mask});
    context->saved_data["causal"] = causal;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2];
    const int64_t groups = q.size(1) / k.size(1);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        gradients[0].to(torch::kFloat), q.to(torch::kFloat), widen(k, groups), widen(v, groups),
        saved[3].to(torch::kFloat), saved[4], 0.0, context->saved_data["causal"].toBool(), optional(saved[5]));
    const auto type = q.scalar_type();
    return {dq.to(type), narrow_heads(dk, groups, type), narrow_heads(dv, groups, type), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const Tensor& bias) {
  const bool narrow = q.scalar_type() == torch::kBFloat16 || q.scalar_type() == torch::kHalf;
  if (q.is_cpu() && narrow && q.size(2) > 1) return WideAttention::apply(q, k, v, causal, optional(bias));
  return at::scaled_dot_product_attention(q, k, v, optional(bias), 0.0, causal, std::nullopt, q.size(1) != k.size(1));
}

}  // namespace vlmtune::kernels
