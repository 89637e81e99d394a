#include "kernels/linear.h"

#include <ATen/Parallel.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;

constexpr int64_t kFewRows = 4;

bool is_decoding(const Tensor& x, const Tensor& weight) {
  const bool differentiated = torch::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  return !differentiated && cpu::has_loop(x) && x.numel() > 0 && x.numel() / x.size(-1) <= kFewRows && weight.is_contiguous();
}

Tensor few_rows(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const auto x = input.to(torch::kFloat).contiguous();
  const int64_t k = x.size(-1), m = x.numel() / k, n = weight.size(0);
  auto shape = x.sizes().vec();
  shape.back() = n;
  auto y = torch::empty(shape, input.options());
  cpu::dispatch(input.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T* b = bias.defined() ? bias.data_ptr<T>() : nullptr;
    at::parallel_for(0, n, std::max<int64_t>(16, 32768 / k), [&](int64_t begin, int64_t end) {
      cpu::linear_few_rows<T>(x.data_ptr<float>(), weight.data_ptr<T>(), b, y.data_ptr<T>(), m, k, n, begin, end);
    });
  });
  return y;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return is_decoding(x, weight) ? few_rows(x, weight, bias) : torch::linear(x, weight, bias);
}

}  // namespace vlmtune::kernels
