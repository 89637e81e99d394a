#include "kernels/rms_norm.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    const auto wide = x.to(torch::kFloat);
    const auto rstd = wide.square().mean(-1, true).add_(eps).rsqrt_();  // [..., 1]
    context->save_for_backward({x, weight, rstd});
    return (wide * rstd).to(x.scalar_type()) * weight.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const auto normal = x.to(torch::kFloat) * rstd;                     // [..., D]
    const auto dy = gradients[0].to(torch::kFloat);
    Tensor dx, dweight;
    if (context->needs_input_grad(0)) {
      const auto scaled = dy * weight.to(torch::kFloat);
      dx = ((scaled - normal * (scaled * normal).mean(-1, true)) * rstd).to(x.scalar_type());
    }
    if (context->needs_input_grad(1))
      dweight = (dy * normal.to(x.scalar_type())).flatten(0, -2).sum(0).to(weight.scalar_type());
    return {dx, dweight, Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) { return RmsNormFunction::apply(x, weight, eps); }

}  // namespace vlmtune::kernels
