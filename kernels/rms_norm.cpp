#include "kernels/rms_norm.h"

#include <ATen/Parallel.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows that a thread takes at least.
int64_t grain(int64_t row_size) { return std::max<int64_t>(1, 16384 / row_size); }

std::pair<Tensor, Tensor> forward_loop(const Tensor& input, const Tensor& weight, double eps) {
  const auto x = input.contiguous(), w = weight.contiguous();
  const int64_t size = x.size(-1), rows = x.numel() / size;
  auto y = torch::empty_like(x);
  auto shape = x.sizes().vec();
  shape.back() = 1;
  auto rstd = torch::empty(shape, x.options().dtype(torch::kFloat));
  cpu::dispatch(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, rows, grain(size), [&](int64_t begin, int64_t end) {
      cpu::rms_norm_forward<T>(x.data_ptr<T>() + begin * size, w.data_ptr<T>(), y.data_ptr<T>() + begin * size,
                                      rstd.data_ptr<float>() + begin, end - begin, size, static_cast<float>(eps));
    });
  });
  return {y, rstd};
}

Tensor backward_loop(const Tensor& gradient, const Tensor& input, const Tensor& weight, const Tensor& rstd) {
  const auto dy = gradient.contiguous(), x = input.contiguous(), w = weight.contiguous();
  const int64_t size = x.size(-1), rows = x.numel() / size;
  auto dx = torch::empty_like(x);
  cpu::dispatch(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, rows, grain(size), [&](int64_t begin, int64_t end) {
      cpu::rms_norm_backward<T>(dy.data_ptr<T>() + begin * size, x.data_ptr<T>() + begin * size, w.data_ptr<T>(),
                                       rstd.data_ptr<float>() + begin, dx.data_ptr<T>() + begin * size, end - begin, size);
    });
  });
  return dx;
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    Tensor y, rstd;
    if (cpu::has_loop(x)) {
      std::tie(y, rstd) = forward_loop(x, weight.to(x.scalar_type()), eps);
    } else {
      const auto wide = x.scalar_type() == torch::kDouble ? x : x.to(torch::kFloat);
      rstd = wide.square().mean(-1, true).add_(eps).rsqrt_();  // [..., 1]
      y = (wide * rstd).to(x.scalar_type()) * weight.to(x.scalar_type());
    }
    context->save_for_backward({x, weight, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const auto& dy = gradients[0];
    const auto w = weight.to(x.scalar_type());
    Tensor dx, dweight;
    if (context->needs_input_grad(0)) {
      if (cpu::has_loop(x)) {
        dx = backward_loop(dy, x, w, rstd);
      } else {
        const auto normal = x.to(rstd.scalar_type()) * rstd;                // [..., D]
        const auto scaled = (dy * w).to(rstd.scalar_type());
        dx = ((scaled - normal * (scaled * normal).mean(-1, true)) * rstd).to(x.scalar_type());
      }
    }
    if (context->needs_input_grad(1))
      dweight = (dy * (x.to(rstd.scalar_type()) * rstd).to(x.scalar_type())).to(rstd.scalar_type()).flatten(0, -2).sum(0).to(weight.scalar_type());
    return {dx, dweight, Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) { return RmsNormFunction::apply(x, weight, eps); }

}  // namespace vlmtune::kernels
