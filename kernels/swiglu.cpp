#include "kernels/swiglu.h"

#include <ATen/Parallel.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 16384;

Tensor forward_loop(const Tensor& gate_input, const Tensor& up_input) {
  const auto gate = gate_input.contiguous(), up = up_input.contiguous();
  auto y = torch::empty_like(gate);
  cpu::dispatch(gate.scalar_type(), [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
      cpu::swiglu_forward<T>(gate.data_ptr<T>() + begin, up.data_ptr<T>() + begin, y.data_ptr<T>() + begin, end - begin);
    });
  });
  return y;
}

std::pair<Tensor, Tensor> backward_loop(const Tensor& gradient, const Tensor& gate_input, const Tensor& up_input) {
  const auto dy = gradient.contiguous(), gate = gate_input.contiguous(), up = up_input.contiguous();
  auto dgate = torch::empty_like(gate), dup = torch::empty_like(gate);
  cpu::dispatch(gate.scalar_type(), [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
      cpu::swiglu_backward<T>(dy.data_ptr<T>() + begin, gate.data_ptr<T>() + begin, up.data_ptr<T>() + begin,
                                     dgate.data_ptr<T>() + begin, dup.data_ptr<T>() + begin, end - begin);
    });
  });
  return {dgate, dup};
}

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up) {
    context->save_for_backward({gate, up});
    return cpu::has_loop(gate) ? forward_loop(gate, up) : torch::silu(gate).mul_(up);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1];
    if (cpu::has_loop(gate)) {
      const auto [dgate, dup] = backward_loop(gradients[0], gate, up);
      return {dgate, dup};
    }
    return {at::silu_backward(gradients[0] * up, gate), torch::silu(gate).mul_(gradients[0])};
  }
};

}  // namespace

Tensor swiglu(const Tensor& gate, const Tensor& up) { return SwigluFunction::apply(gate, up); }

}  // namespace vlmtune::kernels
