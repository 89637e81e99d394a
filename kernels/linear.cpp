#include "kernels/linear.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/cpu/brgemm.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops.h"
#include "kernels/device.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kFewRows = 4;

bool is_decoding(const Tensor& x, const Tensor& weight) {
  const bool differentiated = torch::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  return !differentiated && cpu::has_loop(x) && x.numel() > 0 && x.numel() / x.size(-1) <= kFewRows &&
         weight.is_contiguous();
}

Tensor few_rows(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const auto x = input.to(torch::kFloat).contiguous();
  const int64_t k = x.size(-1), m = x.numel() / k, n = weight.size(0);
  auto shape = x.sizes().vec();
  shape.back() = n;
  auto y = torch::empty(shape, input.options());
  cpu::dispatch(input, [&](auto type) {
    using T = decltype(type);
    const T* b = bias.defined() ? bias.data_ptr<T>() : nullptr;
    at::parallel_for(0, n, std::max<int64_t>(16, 32768 / k), [&](int64_t begin, int64_t end) {
      cpu::linear_few_rows<T>(x.data_ptr<float>(), weight.data_ptr<T>(), b, y.data_ptr<T>(), m, k, n, begin, end);
    });
  });
  return y;
}

Tensor onednn_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  using Product = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, c10::string_view,
                         c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Product>();
  return op.call(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, "none",
                 c10::List<std::optional<at::Scalar>>(), "");
}

/// Bytes that oneDNN takes while it multiplies x [m, k] by [n, k] in bf16, measured on processors with AVX512-BF16 and without
/// AMX (within 1 % but for a few shapes; 0 for others): each thread adds up a block of rows by 64 columns in fp32 and keeps a
/// packed block of the weight, and one of x where that is transposed. Rows are cut so that the threads have equally many blocks.
int64_t bf16_work_space(const Tensor& x, int64_t n) {
#if defined(__x86_64__)
  static const bool measured = cpu::multiplies_bf16() && !__builtin_cpu_supports("amx-bf16");
#else
  constexpr bool measured = false;
#endif
  if (!measured) return 0;
  constexpr int64_t kRows = 256, kColumns = 64, kDepth = 512, kPadding = 32, kRest = 832, kShared = 192;
  const int64_t k = x.size(-1), m = x.numel() / k, threads = at::get_num_threads();
  const bool transposed = x.stride(-1) != 1;
  int64_t blocks = (m + kRows - 1) / kRows;
  while (blocks * (transposed ? 1 : (n + kColumns - 1) / kColumns) % threads != 0) ++blocks;
  const int64_t rows = (m + blocks - 1) / blocks, depth = std::min((k + 31) / 32 * 32, kDepth);
  const int64_t of_x = !transposed ? 0 : rows * (depth + (k >= kDepth ? kPadding : 0)) * 2;
  return threads * (rows * std::min(kColumns, n) * 4 + depth * kColumns * 2 + of_x + kRest) + kShared;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, bool need_weight) {
    context->save_for_backward({need_weight ? x : Tensor(), weight});
    context->saved_data["bias"] = bias.has_value();
    return linear_product(x, weight, bias.value_or(Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const auto& dy = gradients[0];
    Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) dx = linear_product(dy, weight.t());
    if (context->needs_input_grad(1)) dweight = linear_product(dy.flatten(0, -2).t(), x.flatten(0, -2).t());
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) dbias = dy.flatten(0, -2).sum(0);
    return {dx, dweight, dbias, Tensor()};
  }
};

}  // namespace

Tensor linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (kernel_device(x) == torch::kCPU && x.scalar_type() == torch::kHalf) {
    const auto wide = [](const Tensor& t) { return t.defined() ? t.to(torch::kFloat) : t; };
    return linear_product(wide(x), wide(weight), wide(bias)).to(torch::kHalf);
  }
  if (kernel_device(x) == torch::kCPU && x.scalar_type() == torch::kFloat && x.numel() > 0 && weight.numel() > 0) {
    const auto rows = x.contiguous();
    return x.is_cpu() ? onednn_product(rows, weight, bias) : torch::linear(rows, weight, bias);
  }
  const auto y = torch::linear(x, weight, bias);
  if (x.is_meta() && kernel_device(x) == torch::kCPU && x.scalar_type() == torch::kBFloat16 && x.numel() > 0)
    torch::empty({bf16_work_space(x, weight.size(0))}, x.options().dtype(torch::kByte));
  return y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (is_decoding(x, weight)) return few_rows(x, weight, bias);
  return LinearFunction::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                               torch::GradMode::is_enabled() && weight.requires_grad());
}

}  // namespace vlmtune::kernels
