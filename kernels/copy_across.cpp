#include "kernels/copy_across.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace vlmtune::kernels {
namespace {

using torch::Tensor;

void copy_values(Tensor& to, const Tensor& from) {
  to.copy_(from, /*non_blocking=*/(to.is_cpu() ? to : from).is_pinned());
}
void copy_nothing(Tensor&, const Tensor&) {}

TORCH_LIBRARY_FRAGMENT(vlmtune, m) { m.def("copy_across_(Tensor(a!) to, Tensor source) -> ()"); }
TORCH_LIBRARY_IMPL(vlmtune, CompositeExplicitAutograd, m) { m.impl("copy_across_", &copy_values); }
TORCH_LIBRARY_IMPL(vlmtune, Meta, m) { m.impl("copy_across_", &copy_nothing); }

}  // namespace

void copy_across(const Tensor& to, const Tensor& from) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::copy_across_", "").typed<decltype(copy_values)>();
  const torch::NoGradGuard no_grad;
  auto target = to;
  op.call(target, from);
}

}  // namespace vlmtune::kernels
