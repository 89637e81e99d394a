#include "kernels/depthwise_conv.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "kernels/cpu/depthwise.h"
#include "kernels/cpu/dispatch.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor wide(const Tensor& x) { return x.scalar_type() == torch::kDouble ? x : x.to(torch::kFloat); }

/// Calls f(tap, what that tap of the kernel sees of x).
template <typename F>
void each_tap(const Tensor& x, int64_t side, F f) {
  const int64_t border = side / 2;
  const auto padded = at::constant_pad_nd(wide(x), {0, 0, border, border, border, border});
  for (int64_t i = 0; i < side; ++i)
    for (int64_t j = 0; j < side; ++j) f(i * side + j, padded.narrow(1, i, x.size(1)).narrow(2, j, x.size(2)));
}

/// [C, 1, k, k] -> [k * k, C]: the channels of a tap side by side.
Tensor taps_of(const Tensor& weight) { return wide(weight).flatten(1).t().contiguous(); }

/// The formulas in plain tensor operations: the oracle, and what devices and types without a loop of their own use.
Tensor forward_plain(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  const auto taps = taps_of(weight);
  const auto y = torch::zeros(x.sizes(), taps.options());
  if (bias) y.add_(*bias);
  each_tap(x, weight.size(2), [&](int64_t tap, const Tensor& seen) { y.addcmul_(seen, taps[tap]); });
  return y.to(x.scalar_type());
}

Tensor weight_gradient_plain(const Tensor& dy, const Tensor& x, int64_t side) {
  const auto gradient = wide(dy);
  std::vector<Tensor> taps;
  each_tap(x, side, [&](int64_t, const Tensor& seen) { taps.push_back((gradient * seen).sum({0, 1, 2})); });
  return torch::stack(taps, 1).view({x.size(3), 1, side, side}).to(x.scalar_type());
}

cpu::DepthwiseShape shape_of(const Tensor& x, int64_t side) {
  return {.images = x.size(0), .height = x.size(1), .width = x.size(2), .channels = x.size(3), .side = side};
}

Tensor forward_cpu(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  if (!cpu::has_loop(input)) return forward_plain(input, weight, bias);
  const auto x = input.contiguous(), taps = taps_of(weight), offset = bias ? wide(*bias).contiguous() : Tensor();
  const auto shape = shape_of(x, weight.size(2));
  auto y = torch::empty_like(x);
  cpu::dispatch(x, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, shape.images * shape.height, 1, [&](int64_t begin, int64_t end) {
      cpu::depthwise_rows<T>(x.const_data_ptr<T>(), taps.const_data_ptr<float>(),
                             bias ? offset.const_data_ptr<float>() : nullptr, y.data_ptr<T>(), shape, begin, end);
    });
  });
  return y;
}

Tensor weight_gradient_cpu(const Tensor& gradient, const Tensor& input, int64_t side) {
  if (!cpu::has_loop(input)) return weight_gradient_plain(gradient, input, side);
  const auto dy = gradient.contiguous(), x = input.contiguous();
  const auto shape = shape_of(x, side);
  auto taps = torch::empty({side * side, shape.channels}, x.options().dtype(torch::kFloat));
  cpu::dispatch(x, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, side * side, 1, [&](int64_t begin, int64_t end) {
      cpu::depthwise_tap_gradients<T>(dy.const_data_ptr<T>(), x.const_data_ptr<T>(), taps.data_ptr<float>(), shape,
                                      begin, end);
    });
  });
  return taps.t().reshape({shape.channels, 1, side, side}).to(x.scalar_type());
}

Tensor call_forward(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::depthwise_conv", "").typed<decltype(forward_cpu)>();
  return op.call(x, weight, bias);
}

Tensor call_weight_gradient(const Tensor& dy, const Tensor& x, int64_t side) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("vlmtune::depthwise_conv_weight_backward", "")
                             .typed<decltype(weight_gradient_cpu)>();
  return op.call(dy, x, side);
}

struct DepthwiseFunction : torch::autograd::Function<DepthwiseFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        bool need_weight) {
    context->save_for_backward({need_weight ? x : Tensor(), weight});
    return call_forward(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const auto& dy = gradients[0];
    Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) dx = call_forward(dy, weight.flip({2, 3}), std::nullopt);
    if (context->needs_input_grad(1)) dweight = call_weight_gradient(dy, x, weight.size(2));
    if (context->needs_input_grad(2)) dbias = dy.sum({0, 1, 2});
    return {dx, dweight, dbias, Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(vlmtune, library) {
  library.def("depthwise_conv(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  library.def("depthwise_conv_weight_backward(Tensor dy, Tensor x, int side) -> Tensor");
}
TORCH_LIBRARY_IMPL(vlmtune, CPU, library) {
  library.impl("depthwise_conv", forward_cpu);
  library.impl("depthwise_conv_weight_backward", weight_gradient_cpu);
}
TORCH_LIBRARY_IMPL(vlmtune, Meta, library) {
  library.impl("depthwise_conv", forward_cpu);
  library.impl("depthwise_conv_weight_backward", weight_gradient_cpu);
}
TORCH_LIBRARY_IMPL(vlmtune, CompositeExplicitAutograd, library) {
  library.impl("depthwise_conv", forward_plain);
  library.impl("depthwise_conv_weight_backward", weight_gradient_plain);
}

Tensor depthwise_conv(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return DepthwiseFunction::apply(x, weight, bias, torch::GradMode::is_enabled() && weight.requires_grad());
}

}  // namespace vlmtune::kernels
