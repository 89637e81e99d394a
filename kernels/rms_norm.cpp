#include "kernels/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "kernels/composed.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The formulas in plain tensor operations: the oracle, and what devices and types without a kernel of their own use.
std::tuple<Tensor, Tensor> forward_plain(const Tensor& x, const Tensor& weight, double eps) {
  const auto wide = x.scalar_type() == torch::kDouble ? x : x.to(torch::kFloat);
  const auto rstd = wide.square().mean(-1, true).add_(eps).rsqrt_();  // [..., 1]
  return {(wide * rstd).to(x.scalar_type()) * weight, rstd};
}

Tensor backward_plain(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd) {
  const auto normal = x.to(rstd.scalar_type()) * rstd;  // [..., D]
  const auto scaled = (dy * weight).to(rstd.scalar_type());
  return ((scaled - normal * (scaled * normal).mean(-1, true)) * rstd).to(x.scalar_type());
}

/// Rows that a thread takes at least.
int64_t grain(int64_t row_size) { return std::max<int64_t>(1, 16384 / row_size); }

std::tuple<Tensor, Tensor> forward_cpu(const Tensor& input, const Tensor& weight, double eps) {
  if (!cpu::has_fused_kernel(input)) return forward_plain(input, weight, eps);
  const auto x = input.contiguous(), w = weight.contiguous();
  const int64_t size = x.size(-1), rows = x.numel() / size;
  auto y = torch::empty_like(x);
  auto shape = x.sizes().vec();
  shape.back() = 1;
  auto rstd = torch::empty(shape, x.options().dtype(torch::kFloat));
  cpu::dispatch(x, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, rows, grain(size), [&](int64_t begin, int64_t end) {
      cpu::rms_norm_forward<T>(x.data_ptr<T>() + begin * size, w.data_ptr<T>(), y.data_ptr<T>() + begin * size,
                               rstd.data_ptr<float>() + begin, end - begin, size, static_cast<float>(eps));
    });
  });
  return {y, rstd};
}

Tensor backward_cpu(const Tensor& gradient, const Tensor& input, const Tensor& weight, const Tensor& rstd) {
  if (!cpu::has_fused_kernel(input)) return backward_plain(gradient, input, weight, rstd);
  const auto dy = gradient.contiguous(), x = input.contiguous(), w = weight.contiguous();
  const int64_t size = x.size(-1), rows = x.numel() / size;
  auto dx = torch::empty_like(x);
  cpu::dispatch(x, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, rows, grain(size), [&](int64_t begin, int64_t end) {
      cpu::rms_norm_backward<T>(dy.data_ptr<T>() + begin * size, x.data_ptr<T>() + begin * size, w.data_ptr<T>(),
                                rstd.data_ptr<float>() + begin, dx.data_ptr<T>() + begin * size, end - begin, size);
    });
  });
  return dx;
}

std::tuple<Tensor, Tensor> call_forward(const Tensor& x, const Tensor& weight, double eps) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::rms_norm_forward", "").typed<decltype(forward_cpu)>();
  return op.call(x, weight, eps);
}

Tensor call_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::rms_norm_backward", "").typed<decltype(backward_cpu)>();
  return op.call(dy, x, weight, rstd);
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    const auto [y, rstd] = call_forward(x, weight.to(x.scalar_type()), eps);
    context->save_for_backward({x, weight, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const auto& dy = gradients[0];
    Tensor dx, dweight;
    if (context->needs_input_grad(0)) dx = call_backward(dy, x, weight.to(x.scalar_type()), rstd);
    if (context->needs_input_grad(1))
      dweight = (dy * (x.to(rstd.scalar_type()) * rstd).to(x.scalar_type()))
                    .to(rstd.scalar_type())
                    .flatten(0, -2)
                    .sum(0)
                    .to(weight.scalar_type());
    return {dx, dweight, Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(vlmtune, library) {
  library.def("rms_norm_forward(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)");
  library.def("rms_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor rstd) -> Tensor");
}
TORCH_LIBRARY_IMPL(vlmtune, CPU, library) {
  library.impl("rms_norm_forward", forward_cpu);
  library.impl("rms_norm_backward", backward_cpu);
}
// The plugins' kernels allocate what these do.
TORCH_LIBRARY_IMPL(vlmtune, Meta, library) {
  library.impl("rms_norm_forward", forward_cpu);
  library.impl("rms_norm_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(vlmtune, CompositeExplicitAutograd, library) {
  library.impl("rms_norm_forward", forward_plain);
  library.impl("rms_norm_backward", backward_plain);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return is_composed(x) ? composed_rms_norm(x, weight, eps) : RmsNormFunction::apply(x, weight, eps);
}

}  // namespace vlmtune::kernels
