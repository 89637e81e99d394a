#include "kernels/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<Tensor> optional(const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

/// [B, K, T, d] with each head repeated for its group of queries.
Tensor repeat_heads(const Tensor& x, int64_t groups) { return groups == 1 ? x : x.repeat_interleave(groups, 1); }

/// The gradient of a repeated head is the sum over its group.
Tensor narrow_heads(const Tensor& gradient, int64_t groups, torch::ScalarType type) {
  const auto g = groups == 1 ? gradient : gradient.unflatten(1, {gradient.size(1) / groups, groups}).sum(2);
  return g.to(type);
}

/// Attention on the CPU, computed in fp32 from tensors that are kept in their own type. LibTorch's 16-bit kernel makes
/// a oneDNN product of every small block, whose set-up costs more than its arithmetic.
struct CpuAttention : torch::autograd::Function<CpuAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                        const std::optional<Tensor>& bias) {
    const int64_t groups = q.size(1) / k.size(1);
    const auto mask = bias ? bias->to(torch::kFloat) : Tensor();
    const auto [wide, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        q.to(torch::kFloat), repeat_heads(k.to(torch::kFloat), groups), repeat_heads(v.to(torch::kFloat), groups), 0.0,
        causal, optional(mask));
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
        gradients[0].to(torch::kFloat), q.to(torch::kFloat), repeat_heads(k.to(torch::kFloat), groups),
        repeat_heads(v.to(torch::kFloat), groups), saved[3].to(torch::kFloat), saved[4], 0.0,
        context->saved_data["causal"].toBool(), optional(saved[5]));
    const auto type = q.scalar_type();
    return {dq.to(type), narrow_heads(dk, groups, type), narrow_heads(dv, groups, type), Tensor(), Tensor()};
  }
};

/// One query a head, as in decoding: keys and values are read once, in place and in their own type.
Tensor one_query(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias) {
  auto y = torch::empty({q.size(0), q.size(1), 1, q.size(3)}, q.options());
  const int64_t heads = q.size(1), groups = heads / k.size(1), tokens = k.size(2), size = q.size(3);
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  const auto rows = bias.defined() ? bias.to(q.scalar_type()).expand({q.size(0), 1, 1, tokens}) : bias;
  cpu::dispatch(q, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(
        0, q.size(0) * heads, std::max<int64_t>(1, 32768 / (tokens * size)), [&](int64_t begin, int64_t end) {
          std::vector<float> scratch(static_cast<size_t>(tokens + size));
          for (int64_t i = begin; i < end; ++i) {
            const int64_t b = i / heads, h = i % heads, g = h / groups;
            cpu::attention_one_query<T>(q.data_ptr<T>() + b * q.stride(0) + h * q.stride(1),
                                        {k.data_ptr<T>() + b * k.stride(0) + g * k.stride(1), k.stride(2)},
                                        {v.data_ptr<T>() + b * v.stride(0) + g * v.stride(1), v.stride(2)},
                                        {rows.defined() ? rows.data_ptr<T>() + b * rows.stride(0) : nullptr,
                                         rows.defined() ? rows.stride(3) : 0},
                                        y.data_ptr<T>() + i * size, tokens, size, scale, scratch.data());
          }
        });
  });
  return y;
}

/// LibTorch's CUDA kernels, named so that a dry run takes the same one.
Tensor cuda_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const Tensor& bias) {
  const bool half = q.scalar_type() == torch::kBFloat16 || q.scalar_type() == torch::kHalf;
  if (half && !bias.defined() && q.size(3) % 8 == 0 && q.size(3) <= 256)
    return std::get<0>(at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal));
  const int64_t groups = q.size(1) / k.size(1);
  const auto mask = bias.defined() ? bias.expand({q.size(0), q.size(1), q.size(2), k.size(2)}) : bias;
  const bool differentiated =
      torch::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  return std::get<0>(at::_scaled_dot_product_efficient_attention(q, repeat_heads(k, groups), repeat_heads(v, groups),
                                                                 optional(mask), differentiated, 0.0, causal));
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const Tensor& bias) {
  if (cpu::has_loop(q)) {
    const bool decoding =
        q.size(2) == 1 && !torch::GradMode::is_enabled() && q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1;
    return decoding ? one_query(q, k, v, bias) : CpuAttention::apply(q, k, v, causal, optional(bias));
  }
  // A dry run for Ascend takes these too: its fused attention saves the output and statistics of the rows as well.
  if (q.is_cuda() || q.is_meta()) return cuda_attention(q, k, v, causal, bias);
  return at::scaled_dot_product_attention(q, k, v, optional(bias), 0.0, causal, std::nullopt, q.size(1) != k.size(1));
}

}  // namespace vlmtune::kernels
