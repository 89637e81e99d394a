// Weights and optimizers' moments in few bits.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kernels/dynamic_values.h"
#include "kernels/optimizer_steps.h"
#include "kernels/quantized.h"
#include "tests/kernels/cuda.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;

TEST(FewBits, OnCudaAreTheCpus) {
  if (const auto missing = cuda_is_missing(); !missing.empty()) GTEST_SKIP() << missing;
  torch::manual_seed(5);
  const UpdateOptions options{1e-3, {0.9, 0.99}, 1e-8, 0.1};
  const auto start = torch::randn({5000}), gradient = torch::randn({5000});
  const auto expect_same = [](const Tensor& here, const Tensor& there, double tolerance) {
    EXPECT_LE((here.to(torch::kFloat) - there.cpu().to(torch::kFloat)).abs().max().item<double>(), tolerance);
  };
  std::vector<Tensor> lion, adamw, rounded;
  for (const auto device : {torch::Device(torch::kCPU), torch::Device(torch::kCUDA, 0)}) {
    auto parameter = start.clone().to(device), momentum = torch::zeros({5000}, device);
    lion_step(parameter, gradient.to(device), momentum, options);
    lion.push_back(parameter);
    parameter = start.clone().to(device);
    const auto codes = torch::dtype(torch::kByte).device(device), scales = torch::dtype(torch::kFloat).device(device);
    const auto blocks = num_state_blocks(5000);
    const Moments8bit moments{torch::zeros({5000}, codes), torch::zeros({blocks}, scales), torch::zeros({5000}, codes),
                              torch::zeros({blocks}, scales)};
    for (int step = 1; step <= 3; ++step) adamw_8bit_step(parameter, gradient.to(device), moments, options, step);
    adamw.push_back(parameter);
    rounded.push_back(torch::empty({5000}, torch::dtype(torch::kBFloat16).device(device)));
    round_stochastically(rounded.back(), start.to(device), 9);
  }
  expect_same(lion[0], lion[1], 1e-6);
  expect_same(adamw[0], adamw[1], 1e-5);
  expect_same(rounded[0], rounded[1], 0);
  for (const auto type : {QuantType::kNf4, QuantType::kInt4, QuantType::kInt8})
    for (const bool nested : {false, true}) {
      const auto here = quantize(torch::randn({96, 128}), type, nested),
                 there = c10::make_intrusive<QuantizedWeight>(*here);
      for (auto* part : {&there->codes, &there->scales, &there->nested_scales, &there->offset})
        if (part->defined()) *part = part->to(torch::kCUDA);
      const WeightPart part{3, 50, 64, 64};
      expect_same(dequantize(*here, part, torch::kFloat), dequantize(*there, part, torch::kFloat), 0);
    }
}

/// Every code's value and its bounds with their neighbours, and numbers of every size.
TEST(DynamicCodes, AreOfTheNearestNumbers) {
  torch::manual_seed(5);
  for (const bool has_sign : {false, true}) {
    const auto codes = dynamic_codes(has_sign);
    std::vector<float> numbers{0.0f, -0.0f, 1.0f, -1.0f, 1.0000001f, -1.0000001f, 1e-30f, -1e-30f, 1e-45f, -1e-45f};
    const auto add_around = [&](float number) {
      float below = number, above = number;
      for (int i = 0; i < 4; ++i) {
        numbers.insert(numbers.end(), {below, above});
        below = std::nextafter(below, -2.0f);
        above = std::nextafter(above, 2.0f);
      }
    };
    for (int code = 0; code < 256; ++code) add_around(codes.values[code]);
    for (int code = 0; code < 255; ++code) add_around((codes.values[code] + codes.values[code + 1]) / 2);
    for (const float number : {1.0f, 0.1f, 1e-2f, 1e-4f, 1e-6f}) {
      const auto some = (torch::rand({20000}) * 2 - 1) * number;
      numbers.insert(numbers.end(), some.data_ptr<float>(), some.data_ptr<float>() + some.numel());
    }
    for (const float number : numbers)
      ASSERT_EQ(cpu::nearest_code(codes.cells, number), nearest_of_256(codes.values, number))
          << number << (has_sign ? " with sign" : " without");
  }
}

/// Products in bf16, whose tiles are 64 columns by 256: sizes that fill none, some and many of them, and odd ones.
TEST(QuantizedProducts, AreThoseOfTheWholeWeight) {
  torch::manual_seed(5);
  const int threads = at::get_num_threads();
  const struct {
    int64_t rows, out, in;
  } shapes[] = {{32, 64, 256}, {33, 37, 100}, {100, 130, 600}, {1100, 70, 514},
                {40, 33, 101}, {7, 64, 64},   {1, 37, 100}};
  for (const auto type : {QuantType::kNf4, QuantType::kInt4, QuantType::kInt8})
    for (const bool double_quant : {false, true})
      for (const auto& [rows, out, in] : shapes) {
        SCOPED_TRACE(
            fmt::format("type {} double {}: {} x {} x {}", static_cast<int>(type), double_quant, rows, in, out));
        const auto quantized = quantize(torch::randn({out, in}), type, double_quant);
        const auto whole = dequantize(*quantized, torch::kBFloat16).to(torch::kDouble);
        const auto x = torch::randn({rows, in}).to(torch::kBFloat16),
                   dy = torch::randn({rows, out}).to(torch::kBFloat16);
        const auto bias = torch::randn({out}).to(torch::kBFloat16);
        const auto y = quantized_product(x, *quantized, bias), dx = quantized_input_gradient(dy, *quantized);
        const auto expect_rounded = [](const Tensor& found, const Tensor& exact, const char* what) {
          // Half a unit in the last of bf16's 8 bits, and fp32 sums.
          const auto allowed = exact.abs() * 0x1p-8 + 1e-3;
          EXPECT_TRUE(((found.to(torch::kDouble) - exact).abs() <= allowed).all().item<bool>()) << what;
        };
        expect_rounded(y, torch::matmul(x.to(torch::kDouble), whole.t()) + bias.to(torch::kDouble), "forward");
        expect_rounded(dx, torch::matmul(dy.to(torch::kDouble), whole), "backward");
        at::set_num_threads(threads == 1 ? 3 : 1);
        EXPECT_TRUE(torch::equal(quantized_product(x, *quantized, bias), y)) << "another number of threads";
        at::set_num_threads(threads);
      }
}

}  // namespace
}  // namespace vlmtune::kernels
