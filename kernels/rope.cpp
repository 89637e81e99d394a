#include "kernels/rope.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// x * cos + sign * rotate_half(x) * sin.
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, double sign) {
  const auto halves = x.chunk(2, -1);
  return torch::addcmul(x * cos, torch::cat({halves[1].neg(), halves[0]}, -1), sin, sign);
}

struct RopeFunction : torch::autograd::Function<RopeFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& cos, const Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotate(x, cos, sin, 1);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {rotate(gradients[0], saved[0], saved[1], -1), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin) { return RopeFunction::apply(x, cos, sin); }

}  // namespace vlmtune::kernels
