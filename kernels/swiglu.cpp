#include "kernels/swiglu.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up) {
    context->save_for_backward({gate, up});
    return torch::silu(gate).mul_(up);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1];
    return {at::silu_backward(gradients[0] * up, gate), torch::silu(gate).mul_(gradients[0])};
  }
};

}  // namespace

Tensor swiglu(const Tensor& gate, const Tensor& up) { return SwigluFunction::apply(gate, up); }

}  // namespace vlmtune::kernels
