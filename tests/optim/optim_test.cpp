// Where an update takes place and what its parameters are kept in: neither may change what is learnt.
#include <gmock/gmock.h>

#include "kernels/optimizer_steps.h"
#include "lib/memory/tracking.h"
#include "lib/optim/adamw.h"
#include "lib/optim/lion.h"

namespace vlmtune {
namespace {

using torch::Tensor;

std::vector<TrainedTensor> trained(torch::ScalarType type, torch::Device device = torch::kCPU) {
  torch::manual_seed(1);
  return {{"weight", (torch::randn({96, 64}) / 8).to(type).to(device).requires_grad_(true), 1e-3, 0.1}};
}

/// Parameters after thirty updates with gradients that lead to one goal.
Tensor learn(Optimizer& optimizer, bool gradients_on_host = false) {
  const auto& t = optimizer.tensors()[0];
  const auto goal = torch::full({96, 64}, 0.3);
  auto tensor = t.tensor;
  for (uint64_t step = 0; step < 30; ++step) {
    tensor.mutable_grad() = (tensor.detach().to(torch::kFloat) - goal).to(tensor.scalar_type());
    if (gradients_on_host) move_gradient_to_host(t);
    optimizer.step(1, step);
    zero_gradients(optimizer.tensors());
  }
  return tensor.detach().clone();
}

TEST(Optim, UpdatesOnTheHostAreTheSame) {
  AdamW here(trained(torch::kFloat), {}), there(trained(torch::kFloat), {}, true);
  EXPECT_TRUE(torch::equal(learn(here), learn(there)));
  EXPECT_TRUE(there.state().contains("weight.master"));
  Lion lion(trained(torch::kFloat), {0.9, 0.99}), lion_there(trained(torch::kFloat), {0.9, 0.99}, true);
  EXPECT_TRUE(torch::equal(learn(lion), learn(lion_there)));

  auto moved = trained(torch::kFloat);
  moved[0].host_gradient = std::make_shared<HostGradient>();
  AdamW with_gradients(std::move(moved), {}, true);
  AdamW again(trained(torch::kFloat), {});
  EXPECT_TRUE(torch::equal(learn(with_gradients, true), learn(again)));
}

TEST(Optim, HostStateComesBack) {
  AdamW first(trained(torch::kBFloat16), {}, true), second(trained(torch::kBFloat16), {}, true);
  learn(first);
  {
    const torch::NoGradGuard no_grad;
    auto tensor = second.tensors()[0].tensor;
    tensor.copy_(first.tensors()[0].tensor);
  }
  second.load_state(first.state());
  EXPECT_TRUE(torch::equal(learn(first), learn(second)));
}

TEST(Optim, GradientsOfMicroBatchesAddUpOnTheHost) {
  auto t = trained(torch::kFloat)[0];
  t.host_gradient = std::make_shared<HostGradient>();
  for (int i = 1; i <= 2; ++i) {
    t.tensor.mutable_grad() = torch::full({96, 64}, static_cast<double>(i));
    move_gradient_to_host(t);
    EXPECT_FALSE(t.tensor.grad().defined());
  }
  EXPECT_TRUE(torch::equal(t.gradient(), torch::full({96, 64}, 3.0)));
}

/// Updates too small for bf16 would be lost by rounding to the nearest number.
TEST(Optim, StochasticRoundingLearnsWhatNearestRoundingLoses) {
  const auto after = [](const Tensor& start, int steps,
                        const std::function<void(Tensor&, const Tensor&, uint64_t)>& round) {
    auto x = start.clone();
    for (int step = 0; step < steps; ++step) round(x, x.to(torch::kFloat) + 1e-4, static_cast<uint64_t>(step));
    return x.to(torch::kFloat).mean().item<double>();
  };
  const auto start = torch::ones({200, 100}, torch::kBFloat16);
  const double nearest = after(start, 100, [](Tensor& x, const Tensor& y, uint64_t) { x.copy_(y); });
  const double stochastic =
      after(start, 100, [](Tensor& x, const Tensor& y, uint64_t seed) { kernels::round_stochastically(x, y, seed); });
  EXPECT_EQ(nearest, 1.0);
  EXPECT_NEAR(stochastic, 1.01, 2e-4);
}

TEST(Optim, StochasticRoundingPicksANeighbour) {
  torch::manual_seed(2);
  const auto values = torch::randn({1000});
  auto rounded = torch::empty({1000}, torch::kBFloat16), again = torch::empty({1000}, torch::kBFloat16);
  kernels::round_stochastically(rounded, values, 7);
  kernels::round_stochastically(again, values, 7);
  EXPECT_TRUE(torch::equal(rounded, again));
  EXPECT_LE(((rounded.to(torch::kFloat) - values).abs() / values.abs()).max().item<double>(), 1.0 / 128);
  kernels::round_stochastically(again, values, 8);
  EXPECT_FALSE(torch::equal(rounded, again));
  const auto exact = torch::tensor({0.5, -2.0, std::numeric_limits<double>::infinity(), 0.0}, torch::kFloat);
  auto kept = torch::empty({4}, torch::kBFloat16);
  kernels::round_stochastically(kept, exact, 3);
  EXPECT_TRUE(torch::equal(kept.to(torch::kFloat), exact));
}

TEST(Optim, Bf16ParametersFollowFp32Ones) {
  AdamW wide(trained(torch::kFloat), {}), narrow(trained(torch::kBFloat16), {});
  const auto a = learn(wide), b = learn(narrow).to(torch::kFloat);
  EXPECT_EQ(narrow.state().at("weight.exp_avg").scalar_type(), torch::kFloat);
  EXPECT_NEAR(a.mean().item<double>(), b.mean().item<double>(), 1e-3);
}

/// In a dry run what an update on the host keeps counts as the host's.
TEST(Optim, ADryRunCountsTheHost) {
  track_allocations();
  const auto before = memory_accounts();
  const auto device = std::make_shared<MemoryLedger>(), host = std::make_shared<MemoryLedger>();
  set_memory_accounts({device, host});
  {
    AdamW optimizer(trained(torch::kBFloat16, torch::kMeta), {}, true);
    auto tensor = optimizer.tensors()[0].tensor;
    const auto at_first = device->bytes(), count = tensor.numel();
    tensor.mutable_grad() = torch::empty_like(tensor);
    optimizer.step(1);
    zero_gradients(optimizer.tensors());
    EXPECT_EQ(device->bytes(), at_first);
    EXPECT_GE(host->bytes(), 12 * count);  // master and two moments
    EXPECT_LT(host->bytes(), 12 * count + 4096);
  }
  set_memory_accounts(before);
}

}  // namespace
}  // namespace vlmtune
