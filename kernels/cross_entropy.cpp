#include "kernels/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;

/// The formula in plain tensor operations, for devices and types without a kernel of their own.
Tensor plain(Tensor& logits, const Tensor& targets, bool needs_gradient) {
  auto wide = logits.to(torch::kDouble == logits.scalar_type() ? torch::kDouble : torch::kFloat);
  const auto target = targets.unsqueeze(1);
  const auto log_sum = wide.logsumexp(-1, true);
  const auto total = (log_sum - wide.gather(1, target)).sum().to(torch::kFloat);
  if (!needs_gradient) return total;
  wide.sub_(log_sum).exp_();
  wide.scatter_add_(1, target, torch::full_like(target, -1, wide.options()));
  if (!wide.is_same(logits)) logits.copy_(wide);
  return total;
}

Tensor cross_entropy_cpu(Tensor& logits, const Tensor& targets, bool needs_gradient) {
  if (!cpu::has_fused_kernel(logits) || !logits.is_contiguous()) return plain(logits, targets, needs_gradient);
  const int64_t rows = logits.size(0), size = logits.size(1);
  const auto losses = torch::empty({rows}, logits.options().dtype(torch::kFloat));
  cpu::dispatch(logits, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        losses.data_ptr<float>()[row] = cpu::cross_entropy_row<T>(logits.data_ptr<T>() + row * size, size,
                                                                  targets.data_ptr<int64_t>()[row], needs_gradient);
    });
  });
  return losses.sum();
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vlmtune, library) {
  library.def("cross_entropy_(Tensor(a!) logits, Tensor targets, bool needs_gradient) -> Tensor");
}
TORCH_LIBRARY_IMPL(vlmtune, CPU, library) { library.impl("cross_entropy_", cross_entropy_cpu); }
TORCH_LIBRARY_IMPL(vlmtune, Meta, library) { library.impl("cross_entropy_", cross_entropy_cpu); }

Tensor cross_entropy_(Tensor& logits, const Tensor& targets, bool needs_gradient) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("vlmtune::cross_entropy_", "")
                             .typed<decltype(cross_entropy_cpu)>();
  return op.call(logits, targets, needs_gradient);
}

}  // namespace vlmtune::kernels
