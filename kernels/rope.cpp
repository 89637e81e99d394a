#include "kernels/rope.h"

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

/// Keeps x's memory order, which is usually that of a transposed [B, T, H, d].
Tensor rotate_loop(const Tensor& x, const Tensor& cos_table, const Tensor& sin_table, float sign) {
  const auto cos = cos_table.contiguous(), sin = sin_table.contiguous();
  auto y = torch::empty_like(x);
  const int64_t batch = x.size(0), heads = x.size(1), tokens = x.size(2), size = x.size(3);
  const int64_t table_batch = cos.size(0) == 1 ? 0 : tokens * size;
  cpu::dispatch(x, [&](auto type) {
    using T = decltype(type);
    const T *from = x.data_ptr<T>(), *of_cos = cos.data_ptr<T>(), *of_sin = sin.data_ptr<T>();
    T* to = y.data_ptr<T>();
    const auto x_strides = x.strides(), y_strides = y.strides();
    at::parallel_for(0, batch * tokens, std::max<int64_t>(1, 8192 / (heads * size)), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t b = row / tokens, t = row % tokens, table = b * table_batch + t * size;
        for (int64_t h = 0; h < heads; ++h)
          cpu::rope_row<T>(from + b * x_strides[0] + h * x_strides[1] + t * x_strides[2], of_cos + table,
                           of_sin + table, to + b * y_strides[0] + h * y_strides[1] + t * y_strides[2], size, sign);
      }
    });
  });
  return y;
}

/// x * cos + sign * rotate_half(x) * sin.
Tensor rotate_cpu(const Tensor& x, const Tensor& cos, const Tensor& sin, double sign) {
  if (cpu::has_fused_kernel(x) && x.stride(-1) == 1) return rotate_loop(x, cos, sin, static_cast<float>(sign));
  const auto halves = x.chunk(2, -1);
  return torch::addcmul(x * cos, torch::cat({halves[1].neg(), halves[0]}, -1), sin, sign);
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, double sign) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::rope", "").typed<decltype(rotate_cpu)>();
  return op.call(x, cos, sin, sign);
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

TORCH_LIBRARY_FRAGMENT(vlmtune, library) {
  library.def("rope(Tensor x, Tensor cos, Tensor sin, float sign) -> Tensor");
}
TORCH_LIBRARY_IMPL(vlmtune, CPU, library) { library.impl("rope", rotate_cpu); }
TORCH_LIBRARY_IMPL(vlmtune, Meta, library) { library.impl("rope", rotate_cpu); }

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  return is_composed(x) ? composed_rope(x, cos, sin) : RopeFunction::apply(x, cos, sin);
}

}  // namespace vlmtune::kernels
