#include "lib/profile/host_rates.h"

#include <algorithm>

#include "kernels/linear.h"
#include "lib/base/clock.h"
#include "lib/memory/scope.h"

namespace vlmtune {
namespace {

/// The shortest of some runs.
template <typename F>
double seconds_of(F f) {
  constexpr int kRuns = 4;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = now_seconds();
    f();
    const double seconds = now_seconds() - begin;
    if (run == 1 || (run > 1 && seconds < best)) best = seconds;  // the first one warms up
  }
  return best;
}

DeviceRates measure() {
  constexpr int64_t kSide = 1024, kBytes = int64_t{64} << 20;
  const torch::NoGradGuard no_grad;
  const UncountedScope not_the_recipe;
  DeviceRates rates;
  for (const auto& [name, type] :
       {std::pair{"fp32", torch::kFloat}, {"bf16", torch::kBFloat16}, {"fp16", torch::kHalf}}) {
    const auto x = torch::ones({kSide, kSide}, type), weight = torch::ones({kSide, kSide}, type);
    rates.flops[name] = 2.0 * kSide * kSide * kSide / seconds_of([&] { kernels::linear_product(x, weight); });
  }
  const auto source = torch::zeros({kBytes}, torch::kByte);
  auto copy = torch::zeros({kBytes}, torch::kByte);
  rates.bytes = 2.0 * kBytes / seconds_of([&] { copy.copy_(source); });  // read and written
  return rates;
}

}  // namespace

const DeviceRates& host_rates() {
  static const DeviceRates rates = measure();
  return rates;
}

}  // namespace vlmtune
