#include "kernels/attention.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <torch/library.h>

#include "kernels/composed.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/loops.h"
#include "kernels/tensors.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// [B, K, T, d] with each head repeated for its group of queries.
Tensor repeat_heads(const Tensor& x, int64_t groups) { return groups == 1 ? x : x.repeat_interleave(groups, 1); }

/// x with adjacent channels.
Tensor with_adjacent_channels(const Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

template <typename T>
cpu::HeadRows<T> head_rows(const Tensor& x) {
  return {x.data_ptr<std::remove_const_t<T>>(), x.stride(0), x.stride(1), x.stride(2)};
}

template <typename T>
cpu::FlashInputs<T> flash_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias,
                                 const Tensor& first_keys) {
  cpu::FlashBias<T> added{};
  if (bias.defined())
    added = {bias.data_ptr<T>(), bias.size(0) == 1 ? 0 : bias.stride(0), bias.stride(2), bias.stride(3)};
  cpu::FirstKeys first{};
  if (first_keys.defined()) first = {first_keys.data_ptr<int32_t>(), first_keys.stride(0)};
  return {head_rows<const T>(q), head_rows<const T>(k), head_rows<const T>(v), added, first};
}

cpu::FlashShape flash_shape(const Tensor& q, const Tensor& k, bool causal) {
  return {q.size(0), q.size(1), k.size(1), q.size(2),
          k.size(2), q.size(3), causal,    1.0f / std::sqrt(static_cast<float>(q.size(3)))};
}

/// Runs f(pair, scratch) for every batch row and key-value head, each thread with work space of its own.
template <typename F>
void for_each_pair(const cpu::FlashShape& shape, const Tensor& scratch, F f) {
  at::parallel_for(0, shape.batch * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    auto* own = reinterpret_cast<std::byte*>(scratch[at::get_thread_num()].data_ptr<uint8_t>());
    for (int64_t pair = begin; pair < end; ++pair) f(pair, own);
  });
}

Tensor scratch_like(const Tensor& q, int64_t bytes) {
  return torch::empty({at::get_num_threads(), bytes}, q.options().dtype(torch::kByte));
}

/// y and the logarithm of each query's sum of exponentials [B, H, Tq].
std::tuple<Tensor, Tensor> forward_cpu(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const std::optional<Tensor>& bias, const std::optional<Tensor>& first_keys,
                                       bool causal) {
  const auto shape = flash_shape(q, k, causal);
  auto y = empty_transposed(q);
  auto log_sum = torch::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(torch::kFloat));
  cpu::dispatch_type(q, [&](auto type) {
    using T = decltype(type);
    const auto scratch = scratch_like(q, cpu::flash_forward_scratch<T>(shape));
    if (q.is_meta() || q.numel() == 0) return;
    const auto in = flash_inputs<T>(q, k, v, bias.value_or(Tensor()), first_keys.value_or(Tensor()));
    for_each_pair(shape, scratch, [&](int64_t pair, std::byte* own) {
      cpu::flash_forward<T>(shape, in, pair, head_rows<T>(y), log_sum.data_ptr<float>(), own);
    });
  });
  return {y, log_sum};
}

std::tuple<Tensor, Tensor, Tensor> backward_cpu(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                                                const Tensor& y, const Tensor& log_sum,
                                                const std::optional<Tensor>& bias,
                                                const std::optional<Tensor>& first_keys, bool causal) {
  const auto shape = flash_shape(q, k, causal);
  auto dq = empty_transposed(q), dk = empty_transposed(k), dv = empty_transposed(v);
  cpu::dispatch_type(q, [&](auto type) {
    using T = decltype(type);
    const auto scratch = scratch_like(q, cpu::flash_backward_scratch<T>(shape));
    if (q.is_meta() || q.numel() == 0) return;
    const auto in = flash_inputs<T>(q, k, v, bias.value_or(Tensor()), first_keys.value_or(Tensor()));
    const cpu::FlashGradients<T> out{head_rows<T>(dq), head_rows<T>(dk), head_rows<T>(dv)};
    for_each_pair(shape, scratch, [&](int64_t pair, std::byte* own) {
      cpu::flash_backward<T>(shape, in, pair, head_rows<const T>(y), head_rows<const T>(dy), log_sum.data_ptr<float>(),
                             out, own);
    });
  });
  return {dq, dk, dv};
}

struct CpuAttention : torch::autograd::Function<CpuAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& q_any, const Tensor& k_any, const Tensor& v_any,
                        bool causal, const std::optional<Tensor>& any_bias, const std::optional<Tensor>& first_keys) {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::attention", "").typed<decltype(forward_cpu)>();
    const auto q = with_adjacent_channels(q_any), k = with_adjacent_channels(k_any), v = with_adjacent_channels(v_any);
    const auto bias = any_bias ? any_bias->to(q.scalar_type()) : Tensor();
    const auto [y, log_sum] = op.call(q, k, v, optional_tensor(bias), first_keys, causal);
    context->save_for_backward({q, k, v, y, log_sum, bias, first_keys.value_or(Tensor())});
    context->saved_data["causal"] = causal;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("vlmtune::attention_backward", "")
                               .typed<decltype(backward_cpu)>();
    const auto saved = context->get_saved_variables();
    const auto [dq, dk, dv] =
        op.call(with_adjacent_channels(gradients[0]), saved[0], saved[1], saved[2], saved[3], saved[4],
                optional_tensor(saved[5]), optional_tensor(saved[6]), context->saved_data["causal"].toBool());
    return {dq, dk, dv, Tensor(), Tensor(), Tensor()};
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

/// What `first_keys` and `causal` say as a bias, for tensors that no loop of ours takes.
Tensor packed_bias(const Tensor& q, const Tensor& k, bool causal, const Tensor& first_keys) {
  const auto key = torch::arange(k.size(2), first_keys.options()).view({1, 1, 1, -1});
  const auto query = torch::arange(q.size(2), first_keys.options()).view({1, 1, -1, 1});
  auto hidden = key < first_keys.view({q.size(0), 1, -1, 1});
  if (causal) hidden = hidden.logical_or(key > query);
  return torch::zeros(hidden.sizes(), q.options()).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
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
                                                                 optional_tensor(mask), differentiated, 0.0, causal));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vlmtune, library) {
  library.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? first_keys, bool causal) -> (Tensor, Tensor)");
  library.def(
      "attention_backward(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y, Tensor log_sum, Tensor? bias, "
      "Tensor? first_keys, bool causal) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(vlmtune, CPU, library) {
  library.impl("attention", forward_cpu);
  library.impl("attention_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(vlmtune, Meta, library) {
  library.impl("attention", forward_cpu);
  library.impl("attention_backward", backward_cpu);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const Tensor& bias,
                 const Tensor& first_keys) {
  if (cpu::has_loop(q)) {
    const bool decoding =
        q.size(2) == 1 && !torch::GradMode::is_enabled() && q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1;
    return decoding && !first_keys.defined()
               ? one_query(q, k, v, bias)
               : CpuAttention::apply(q, k, v, causal, optional_tensor(bias), optional_tensor(first_keys));
  }
  // In a dry run the kernels below stand for their variants for packed rows, which take the same memory.
  if (first_keys.defined() && !q.is_meta()) return attention(q, k, v, false, packed_bias(q, k, causal, first_keys));
  // Transformers repeats the heads where there is an attention mask, as in training.
  if (is_composed(q) && torch::GradMode::is_enabled()) {
    const int64_t groups = q.size(1) / k.size(1);
    return cuda_attention(q, repeat_heads(k, groups), repeat_heads(v, groups), causal, bias);
  }
  // A dry run for Ascend takes these too: its fused attention saves the output and statistics of the rows as well.
  if (q.is_cuda() || q.is_meta()) return cuda_attention(q, k, v, causal, bias);
  return at::scaled_dot_product_attention(q, k, v, optional_tensor(bias), 0.0, causal, std::nullopt,
                                          q.size(1) != k.size(1));
}

}  // namespace vlmtune::kernels
