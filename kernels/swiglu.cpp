#include "kernels/swiglu.h"

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

constexpr int64_t kGrain = 16384;

/// The formulas in plain tensor operations: the oracle, and what devices and types without a kernel of their own use.
Tensor forward_plain(const Tensor& gate, const Tensor& up) { return torch::silu(gate).mul_(up); }

std::tuple<Tensor, Tensor> backward_plain(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  return {at::silu_backward(dy * up, gate), torch::silu(gate).mul_(dy)};
}

Tensor forward_cpu(const Tensor& gate_input, const Tensor& up_input) {
  if (!cpu::has_fused_kernel(gate_input)) return forward_plain(gate_input, up_input);
  const auto gate = gate_input.contiguous(), up = up_input.contiguous();
  auto y = torch::empty_like(gate);
  cpu::dispatch(gate, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
      cpu::swiglu_forward<T>(gate.data_ptr<T>() + begin, up.data_ptr<T>() + begin, y.data_ptr<T>() + begin,
                             end - begin);
    });
  });
  return y;
}

std::tuple<Tensor, Tensor> backward_cpu(const Tensor& gradient, const Tensor& gate_input, const Tensor& up_input) {
  if (!cpu::has_fused_kernel(gate_input)) return backward_plain(gradient, gate_input, up_input);
  const auto dy = gradient.contiguous(), gate = gate_input.contiguous(), up = up_input.contiguous();
  auto dgate = torch::empty_like(gate), dup = torch::empty_like(gate);
  cpu::dispatch(gate, [&](auto type) {
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
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::swiglu_forward", "").typed<decltype(forward_cpu)>();
    context->save_for_backward({gate, up});
    return op.call(gate, up);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::swiglu_backward", "").typed<decltype(backward_cpu)>();
    const auto saved = context->get_saved_variables();
    const auto [dgate, dup] = op.call(gradients[0], saved[0], saved[1]);
    return {dgate, dup};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(vlmtune, library) {
  library.def("swiglu_forward(Tensor gate, Tensor up) -> Tensor");
  library.def("swiglu_backward(Tensor dy, Tensor gate, Tensor up) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(vlmtune, CPU, library) {
  library.impl("swiglu_forward", forward_cpu);
  library.impl("swiglu_backward", backward_cpu);
}
// The plugins' kernels allocate what these do.
TORCH_LIBRARY_IMPL(vlmtune, Meta, library) {
  library.impl("swiglu_forward", forward_cpu);
  library.impl("swiglu_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(vlmtune, CompositeExplicitAutograd, library) {
  library.impl("swiglu_forward", forward_plain);
  library.impl("swiglu_backward", backward_plain);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return is_composed(gate) ? composed_swiglu(gate, up) : SwigluFunction::apply(gate, up);
}

}  // namespace vlmtune::kernels
