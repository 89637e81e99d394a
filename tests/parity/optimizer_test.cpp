// Thirty updates against AdamW with bitsandbytes' 8-bit numbers, and its Lion (scripts/golden/make_optimizers.py).
#include "lib/optim/adamw.h"
#include "lib/optim/lion.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

/// Runs the golden's updates and compares after the steps that it holds, in fractions of one step's largest change.
void expect_updates(const Golden& golden, const std::string& name, Optimizer& optimizer, double rate,
                    double tolerance) {
  auto parameter = optimizer.tensors()[0].tensor;
  const auto gradients = golden.tensor("gradients");
  for (int64_t step = 0; step < gradients.size(0); ++step) {
    parameter.mutable_grad() = gradients[step].clone();
    optimizer.step(1);
    const auto key = name + ".after" + std::to_string(step + 1);
    if (!golden.has_tensor(key)) continue;
    expect_close(parameter.detach(), golden.tensor(key), tolerance * rate, key);
  }
}

std::vector<TrainedTensor> trained(const Golden& golden, double rate) {
  return {{"weight", golden.tensor("start").requires_grad_(true), rate, 0.1}};
}

TEST(Optimizers, AdamW8bitKeepsTheNearestNumbers) {
  const Golden golden("optimizers");
  AdamW8bit optimizer(trained(golden, 1e-2), {});
  // A moment that falls on the other side of two codes moves its element by a share of a step.
  expect_updates(golden, "adamw8bit", optimizer, 1e-2, 1e-3);
  EXPECT_EQ(optimizer.state().at("weight.exp_avg.codes").nbytes(), 5000U);
}

TEST(Optimizers, LionIsBitsandbytes) {
  const Golden golden("optimizers");
  Lion optimizer(trained(golden, 1e-3), {0.9, 0.99});
  expect_updates(golden, "lion", optimizer, 1e-3, 1e-2);  // a wrong sign would be 2
}

TEST(Optimizers, SmallTensorsKeepWholeMoments) {
  AdamW8bit optimizer({{"bias", torch::zeros({100}).requires_grad_(true), 0.1, 0}}, {});
  auto tensor = optimizer.tensors()[0].tensor;
  tensor.mutable_grad() = torch::ones({100});
  optimizer.step(1);
  EXPECT_EQ(optimizer.state().at("bias.exp_avg").scalar_type(), torch::kFloat);
}

TEST(Optimizers, StateComesBack) {
  const Golden golden("optimizers");
  AdamW8bit first(trained(golden, 1e-2), {}), second(trained(golden, 1e-2), {});
  const auto gradients = golden.tensor("gradients");
  const auto update = [&](Optimizer& optimizer, int64_t step) {
    auto tensor = optimizer.tensors()[0].tensor;
    tensor.mutable_grad() = gradients[step].clone();
    optimizer.step(1);
  };
  update(first, 0);
  {
    const torch::NoGradGuard no_grad;
    auto tensor = second.tensors()[0].tensor;
    tensor.copy_(first.tensors()[0].tensor);
  }
  second.load_state(first.state());
  update(first, 1);
  update(second, 1);
  EXPECT_TRUE(torch::equal(first.tensors()[0].tensor, second.tensors()[0].tensor));
  Lion other(trained(golden, 1e-3), {0.9, 0.99});
  EXPECT_THROW(other.load_state(first.state()), UserError);
}

}  // namespace
}  // namespace vlmtune::test
