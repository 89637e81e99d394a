#include "kernels/optimizer_steps.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "kernels/cpu/optimizers.h"
#include "kernels/dynamic_values.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;

constexpr int64_t kGrain = 16384;

void lion_cpu(Tensor& parameter, const Tensor& any_gradient, Tensor& momentum, double rate, double beta1, double beta2,
              double weight_decay) {
  const auto gradient = any_gradient.contiguous();
  if (parameter.is_meta()) return;
  const auto rule = rule_of(rate, beta1, beta2, 0, weight_decay);
  at::parallel_for(0, parameter.numel(), kGrain, [&](int64_t begin, int64_t end) {
    cpu::lion(parameter.data_ptr<float>() + begin, gradient.data_ptr<float>() + begin,
              momentum.data_ptr<float>() + begin, end - begin, rule);
  });
}

void adamw_8bit_cpu(Tensor& parameter, const Tensor& any_gradient, Tensor& average_codes, Tensor& average_scales,
                    Tensor& square_codes, Tensor& square_scales, double rate, double beta1, double beta2, double eps,
                    double weight_decay, double step) {
  const auto gradient = any_gradient.contiguous();
  if (parameter.is_meta()) return;
  const auto rule = rule_of(rate, beta1, beta2, eps, weight_decay);
  const auto scaled_rate = rule.rate / static_cast<float>(1 - std::pow(beta1, step)),
             root = std::sqrt(static_cast<float>(1 - std::pow(beta2, step)));
  const cpu::Moments8bit moments{average_codes.data_ptr<uint8_t>(), square_codes.data_ptr<uint8_t>(),
                                 average_scales.data_ptr<float>(), square_scales.data_ptr<float>()};
  const auto averages = dynamic_codes(true), squares = dynamic_codes(false);
  const int64_t count = parameter.numel();
  at::parallel_for(0, num_state_blocks(count), kGrain / cpu::kStateBlock, [&](int64_t begin, int64_t end) {
    cpu::adamw_8bit(parameter.data_ptr<float>(), gradient.data_ptr<float>(), moments, count, rule, scaled_rate, root,
                    averages, squares, begin, end);
  });
}

void round_stochastically_cpu(Tensor& parameter, const Tensor& values, int64_t seed) {
  if (parameter.is_meta()) return;
  at::parallel_for(0, parameter.numel(), kGrain, [&](int64_t begin, int64_t end) {
    cpu::round_stochastically(values.data_ptr<float>() + begin, parameter.data_ptr<c10::BFloat16>() + begin,
                              end - begin, static_cast<uint64_t>(seed), static_cast<uint64_t>(begin));
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vlmtune, library) {
  library.def(
      "lion_(Tensor(a!) parameter, Tensor gradient, Tensor(b!) momentum, float rate, float beta1, float beta2, "
      "float weight_decay) -> ()");
  library.def(
      "adamw_8bit_(Tensor(a!) parameter, Tensor gradient, Tensor(b!) average_codes, Tensor(c!) average_scales, "
      "Tensor(d!) square_codes, Tensor(e!) square_scales, float rate, float beta1, float beta2, float eps, "
      "float weight_decay, float step) -> ()");
  library.def("round_stochastically_(Tensor(a!) parameter, Tensor values, int seed) -> ()");
}
TORCH_LIBRARY_IMPL(vlmtune, CPU, library) {
  library.impl("lion_", lion_cpu);
  library.impl("adamw_8bit_", adamw_8bit_cpu);
  library.impl("round_stochastically_", round_stochastically_cpu);
}
TORCH_LIBRARY_IMPL(vlmtune, Meta, library) {
  library.impl("lion_", lion_cpu);
  library.impl("adamw_8bit_", adamw_8bit_cpu);
  library.impl("round_stochastically_", round_stochastically_cpu);
}

int64_t num_state_blocks(int64_t count) { return (count + cpu::kStateBlock - 1) / cpu::kStateBlock; }

void lion_step(Tensor& parameter, const Tensor& gradient, Tensor& momentum, const UpdateOptions& o) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::lion_", "").typed<decltype(lion_cpu)>();
  op.call(parameter, gradient, momentum, o.rate, o.betas[0], o.betas[1], o.weight_decay);
}

void adamw_8bit_step(Tensor& parameter, const Tensor& gradient, const Moments8bit& m, const UpdateOptions& o,
                     double step) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::adamw_8bit_", "").typed<decltype(adamw_8bit_cpu)>();
  auto [average_codes, average_scales, square_codes, square_scales] = m;
  op.call(parameter, gradient, average_codes, average_scales, square_codes, square_scales, o.rate, o.betas[0],
          o.betas[1], o.eps, o.weight_decay, step);
}

void round_stochastically(const Tensor& parameter, const Tensor& values, uint64_t seed) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("vlmtune::round_stochastically_", "")
                             .typed<decltype(round_stochastically_cpu)>();
  auto target = parameter;
  op.call(target, values, static_cast<int64_t>(seed));
}

}  // namespace vlmtune::kernels
