// Softmax and cross entropy in the logits' own memory, against LibTorch in double.
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

namespace vlmtune::kernels {
namespace {

using torch::Tensor;

TEST(CrossEntropy, IsLogSoftmaxOfLongRowsAndLargeLogits) {
  torch::manual_seed(2);
  for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kHalf})
    for (const auto& [rows, size, scale] :
         {std::tuple<int64_t, int64_t, double>{3, 1, 1}, {5, 17, 30}, {4, 4096, 1}, {3, 10007, 3}, {2, 33, 3000}}) {
      SCOPED_TRACE(fmt::format("{} {} x {} by {}", torch::toString(type), rows, size, scale));
      auto logits = torch::randn({rows, size}).mul(scale).to(type);
      const auto targets = torch::randint(size, {rows});
      const auto exact = logits.to(torch::kDouble).requires_grad_();
      const auto loss = torch::nn::functional::cross_entropy(
          exact, targets, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      loss.backward();
      auto untouched = logits.clone();
      const double expected = loss.item<double>(), allowed = 1e-6 * std::max(1.0, expected);
      EXPECT_NEAR(cross_entropy_(untouched, targets, false).item<double>(), expected, allowed);
      EXPECT_TRUE(torch::equal(untouched, logits));
      EXPECT_NEAR(cross_entropy_(logits, targets, true).item<double>(), expected, allowed);
      const auto rounded = exact.grad().to(type).to(torch::kDouble);
      const double error = (logits.to(torch::kDouble) - rounded).abs().max().item<double>();
      EXPECT_LE(error, type == torch::kFloat ? 1e-6 : type == torch::kHalf ? 1e-3 : 8e-3);
    }
}

TEST(CrossEntropy, OfNoRowsIsZero) {
  auto logits = torch::empty({0, 9});
  EXPECT_EQ(cross_entropy_(logits, torch::empty({0}, torch::kLong), true).item<float>(), 0);
}

}  // namespace
}  // namespace vlmtune::kernels
