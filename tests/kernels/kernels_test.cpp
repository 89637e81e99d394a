// One table of ops, each against its plain formula in double, on the CPU and, where there is a GPU, on CUDA; and
// finite differences of its gradients.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>
#include <set>
#include <thread>

#include "kernels/attention.h"
#include "kernels/composed.h"
#include "kernels/depthwise_conv.h"
#include "kernels/linear.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/lora_linear.h"
#include "kernels/optimizer_steps.h"
#include "kernels/quantized.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tests/kernels/cuda.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using Inputs = std::vector<Tensor>;

struct Op {
  const char* name;
  std::function<Tensor(const Inputs&)> run;
  std::function<Tensor(const Inputs&)> formula;     ///< in plain tensor operations
  std::function<Inputs(torch::ScalarType)> inputs;  ///< the first `num_differentiable` get gradients
  size_t num_differentiable;
};

Tensor random(torch::IntArrayRef shape, torch::ScalarType type) { return torch::randn(shape, torch::kDouble).to(type); }

Tensor rotate_half(const Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return torch::cat({-halves[1], halves[0]}, -1);
}

Inputs rope_inputs(torch::ScalarType type) {
  const auto angles = torch::arange(7, torch::kDouble).view({1, 1, 7, 1}) * torch::rand({5}, torch::kDouble);
  const auto both = torch::cat({angles, angles}, -1);
  // [B, T, H, d] seen as [B, H, T, d], as attention has it
  return {random({2, 7, 3, 10}, type).transpose(1, 2), both.cos().to(type), both.sin().to(type)};
}

/// A weight whose values 4 bits hold: -1 ... 1 in sevenths, so that its blocks' scales are 1.
Tensor representable(int64_t out, int64_t in, torch::ScalarType type) {
  auto weight = torch::randint(-7, 8, {out, in}).to(torch::kDouble) / 7;
  weight.flatten().slice(0, 0, out * in, 16).fill_(1);
  return weight.to(type);
}

QuantizedPtr quantize_again(const Tensor& weight) { return quantize(weight.detach(), QuantType::kInt4, false); }

/// q [B, H, Tq, d], k and v [B, K, Tk, d], perhaps a bias.
Tensor plain_attention(const Inputs& i, bool causal) {
  const auto k = i[1].repeat_interleave(i[0].size(1) / i[1].size(1), 1);
  const auto v = i[2].repeat_interleave(i[0].size(1) / i[2].size(1), 1);
  auto scores = torch::matmul(i[0], k.transpose(-1, -2)) / std::sqrt(static_cast<double>(i[0].size(3)));
  if (i.size() > 3) scores = scores + i[3];
  if (causal) scores = scores.masked_fill(torch::ones({i[0].size(2), k.size(2)}, torch::kBool).triu(1), -1e300);
  return torch::matmul(scores.softmax(-1), v);
}

/// Packed rows of these lengths: where the sample of each token starts [B, T].
Tensor starts_of(const std::vector<std::vector<int32_t>>& rows) {
  std::vector<Tensor> all;
  for (const auto& lengths : rows) {
    std::vector<int32_t> starts;
    for (const int32_t length : lengths)
      starts.insert(starts.end(), static_cast<size_t>(length), static_cast<int32_t>(starts.size()));
    all.push_back(torch::tensor(starts, torch::kInt));
  }
  return torch::stack(all);
}

/// Causal attention within each sample.
Tensor plain_packed_attention(Inputs i, const Tensor& starts) {
  const auto key = torch::arange(i[1].size(2)).view({1, 1, 1, -1});
  i.push_back(torch::zeros({starts.size(0), 1, starts.size(1), starts.size(1)}, i[0].options())
                  .masked_fill(key < starts.view({starts.size(0), 1, -1, 1}), -1e300));
  return plain_attention(i, true);
}

Op packed_attention(const char* name, const Tensor& starts, int64_t heads, int64_t kv_heads, int64_t size) {
  const int64_t batch = starts.size(0), tokens = starts.size(1);
  return {name, [=](const Inputs& i) { return attention(i[0], i[1], i[2], true, {}, starts); },
          [=](const Inputs& i) { return plain_packed_attention(i, starts); },
          [=](torch::ScalarType t) {
            return Inputs{random({batch, heads, tokens, size}, t), random({batch, kv_heads, tokens, size}, t),
                          random({batch, kv_heads, tokens, size}, t)};
          },
          3};
}

/// x [N, H, W, C]; LibTorch's has the channels before the rows.
Op depthwise(const char* name, const std::vector<int64_t>& shape, int64_t side) {
  const int64_t channels = shape[3];
  return {
      name, [](const Inputs& i) { return depthwise_conv(i[0], i[1], i[2]); },
      [=](const Inputs& i) {
        return torch::conv2d(i[0].permute({0, 3, 1, 2}), i[1], i[2], 1, side / 2, 1, channels).permute({0, 2, 3, 1});
      },
      [=](torch::ScalarType t) {
        return Inputs{random(shape, t), random({channels, 1, side, side}, t), random({channels}, t)};
      },
      3};
}

const std::vector<Op>& ops() {
  static const std::vector<Op> table = {
      {"rms_norm", [](const Inputs& i) { return rms_norm(i[0], i[1], 1e-5); },
       [](const Inputs& i) { return i[0] * (i[0].square().mean(-1, true) + 1e-5).rsqrt() * i[1]; },
       [](torch::ScalarType t) {
         return Inputs{random({3, 5, 37}, t), random({37}, t)};
       },
       2},
      {"rms_norm, no rows", [](const Inputs& i) { return rms_norm(i[0], i[1], 1e-5); },
       [](const Inputs& i) { return i[0] * i[1]; },
       [](torch::ScalarType t) {
         return Inputs{random({0, 16}, t), random({16}, t)};
       },
       1},
      {"swiglu", [](const Inputs& i) { return swiglu(i[0], i[1]); },
       [](const Inputs& i) { return i[0] * torch::sigmoid(i[0]) * i[1]; },
       [](torch::ScalarType t) {
         return Inputs{random({5, 33}, t) * 4, random({5, 33}, t)};
       },
       2},
      {"swiglu, far values", [](const Inputs& i) { return swiglu(i[0], i[1]); },
       [](const Inputs& i) { return i[0] * torch::sigmoid(i[0]) * i[1]; },
       [](torch::ScalarType t) {
         return Inputs{torch::tensor({-200.0, -88.0, -20.0, 0.0, 20.0, 88.0, 200.0}).to(t), torch::ones({7}).to(t)};
       },
       2},
      {"rope", [](const Inputs& i) { return rope(i[0], i[1], i[2]); },
       [](const Inputs& i) { return i[0] * i[1] + rotate_half(i[0]) * i[2]; }, rope_inputs, 1},
      depthwise("depthwise_conv", {2, 4, 6, 5}, 3),
      depthwise("depthwise_conv, smaller than its kernel", {1, 2, 3, 3}, 7),
      depthwise("depthwise_conv, blocks of channels", {2, 9, 8, 131}, 7),
      {"attention, causal, grouped", [](const Inputs& i) { return attention(i[0], i[1], i[2], true, {}); },
       [](const Inputs& i) { return plain_attention(i, true); },
       [](torch::ScalarType t) {
         return Inputs{random({2, 4, 9, 8}, t), random({2, 2, 9, 8}, t), random({2, 2, 9, 8}, t)};
       },
       3},
      {"attention, causal, in blocks", [](const Inputs& i) { return attention(i[0], i[1], i[2], true, {}); },
       [](const Inputs& i) { return plain_attention(i, true); },
       [](torch::ScalarType t) {
         return Inputs{random({1, 3, 131, 72}, t), random({1, 1, 131, 72}, t), random({1, 1, 131, 72}, t)};
       },
       3},
      {"attention, all keys", [](const Inputs& i) { return attention(i[0], i[1], i[2], false, {}); },
       [](const Inputs& i) { return plain_attention(i, false); },
       [](torch::ScalarType t) {
         return Inputs{random({2, 2, 65, 16}, t), random({2, 2, 193, 16}, t), random({2, 2, 193, 16}, t)};
       },
       3},
      {"attention, odd size and bias", [](const Inputs& i) { return attention(i[0], i[1], i[2], false, i[3]); },
       [](const Inputs& i) { return plain_attention(i, false); },
       [](torch::ScalarType t) {
         auto bias = random({2, 1, 70, 33}, t);
         bias.slice(3, 5, 20).fill_(-std::numeric_limits<double>::infinity());
         return Inputs{random({2, 2, 70, 7}, t), random({2, 1, 33, 7}, t), random({2, 1, 33, 7}, t), bias};
       },
       3},
      packed_attention("attention, packed, odd lengths", starts_of({{1, 5, 3, 2}, {11}}), 4, 2, 8),
      packed_attention("attention, packed, blocks are skipped", starts_of({{70, 1, 63, 130, 37}}), 3, 1, 72),
      packed_attention("attention, packed, starts at blocks", starts_of({{64, 128, 9}, {128, 72, 1}}), 2, 2, 7),
      {"linear", [](const Inputs& i) { return linear(i[0], i[1], i[2]); },
       [](const Inputs& i) { return torch::matmul(i[0], i[1].t()) + i[2]; },
       [](torch::ScalarType t) {
         return Inputs{random({3, 5, 12}, t), random({19, 12}, t), random({19}, t)};
       },
       3},
      {"linear, no rows", [](const Inputs& i) { return linear(i[0], i[1], Tensor()); },
       [](const Inputs& i) { return torch::matmul(i[0], i[1].t()); },
       [](torch::ScalarType t) {
         return Inputs{random({0, 12}, t), random({19, 12}, t)};
       },
       2},
      {"lora_linear", [](const Inputs& i) { return lora_linear(i[0], {}, {i[3]}, i[4], i[1], i[2], 1.5); },
       [](const Inputs& i) {
         return torch::matmul(i[0], i[3].t()) + i[4] + torch::matmul(torch::matmul(i[0], i[1].t()), i[2].t()) * 1.5;
       },
       [](torch::ScalarType t) {
         return Inputs{random({3, 5, 12}, t), random({4, 12}, t), random({19, 4}, t), random({19, 12}, t),
                       random({19}, t)};
       },
       3},
      {"lora_linear, dropped", [](const Inputs& i) { return lora_linear(i[0], i[1], {i[4]}, {}, i[2], i[3], 0.5); },
       [](const Inputs& i) {
         return torch::matmul(i[0], i[4].t()) + torch::matmul(torch::matmul(i[1], i[2].t()), i[3].t()) * 0.5;
       },
       [](torch::ScalarType t) {
         return Inputs{random({15, 12}, t), random({15, 12}, t), random({4, 12}, t), random({19, 4}, t),
                       random({19, 12}, t)};
       },
       4},
      {"lora_linear, no rows", [](const Inputs& i) { return lora_linear(i[0], {}, {i[3]}, {}, i[1], i[2], 1); },
       [](const Inputs& i) {
         return torch::matmul(i[0], i[3].t()) + torch::matmul(torch::matmul(i[0], i[1].t()), i[2].t());
       },
       [](torch::ScalarType t) {
         return Inputs{random({0, 12}, t), random({4, 12}, t), random({19, 4}, t), random({19, 12}, t)};
       },
       3},
      {"quantized_linear", [](const Inputs& i) { return quantized_linear(i[0], quantize_again(i[1]), i[2]); },
       [](const Inputs& i) { return torch::matmul(i[0], i[1].t()) + i[2]; },
       [](torch::ScalarType t) {
         return Inputs{random({2, 5, 100}, t), representable(37, 100, t), random({37}, t)};
       },
       1},
      {"quantized_linear, tiles", [](const Inputs& i) { return quantized_linear(i[0], quantize_again(i[1]), i[2]); },
       [](const Inputs& i) { return torch::matmul(i[0], i[1].t()) + i[2]; },
       [](torch::ScalarType t) {
         return Inputs{random({5, 9, 100}, t), representable(38, 100, t), random({38}, t)};
       },
       1},
      {"lora_linear, quantized",
       [](const Inputs& i) {
         return lora_linear(i[0], {}, {{}, quantize_again(i[3])}, {}, i[1], i[2], 0.5);
       },
       [](const Inputs& i) {
         return torch::matmul(i[0], i[3].t()) + torch::matmul(torch::matmul(i[0], i[1].t()), i[2].t()) * 0.5;
       },
       [](torch::ScalarType t) {
         return Inputs{random({7, 100}, t), random({4, 100}, t), random({37, 4}, t), representable(37, 100, t)};
       },
       3},
      {"linear_cross_entropy", [](const Inputs& i) { return linear_cross_entropy(i[0], i[1], i[2], 3); },
       [](const Inputs& i) {
         return torch::nn::functional::cross_entropy(
             torch::matmul(i[0], i[1].t()), i[2],
             torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
       },
       [](torch::ScalarType t) {
         return Inputs{random({7, 12}, t), random({19, 12}, t) * 0.3, torch::randint(19, {7}, torch::kLong)};
       },
       2},
  };
  return table;
}

/// What rounding of inputs, intermediate values and result allows, relative to the largest value.
double tolerance(torch::ScalarType type) { return type == torch::kFloat ? 2e-6 : type == torch::kHalf ? 4e-3 : 3e-2; }

Tensor to_double(const Tensor& x) {
  return x.to(torch::kCPU, x.is_floating_point() ? torch::kDouble : x.scalar_type());
}

void expect_near(const Tensor& found, const Tensor& expected, double allowed, const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  if (expected.numel() == 0) return;
  const double scale = std::max(1e-30, expected.abs().max().item<double>());
  EXPECT_LE((to_double(found) - expected).abs().max().item<double>() / scale, allowed) << what;
}

void compare_with_formula(const Op& op, torch::ScalarType type, torch::Device device) {
  torch::manual_seed(7);
  const auto source = op.inputs(type);
  Inputs inputs, exact;
  for (size_t i = 0; i < source.size(); ++i) {
    const bool differentiable = i < op.num_differentiable;
    inputs.push_back(source[i].to(device).detach().requires_grad_(differentiable));
    exact.push_back(to_double(source[i]).detach().requires_grad_(differentiable));
  }
  const auto found = op.run(inputs), expected = op.formula(exact);
  const auto gradient = torch::randn_like(expected);
  const std::string what = fmt::format("{} in {}", op.name, torch::toString(type));
  expect_near(found, expected, tolerance(type), what);
  found.backward(gradient.to(device, found.scalar_type()));
  expected.backward(gradient.to(found.scalar_type()).to(torch::kDouble));
  for (size_t i = 0; i < op.num_differentiable; ++i)
    expect_near(inputs[i].grad(), exact[i].grad(), 4 * tolerance(type),
                fmt::format("{}, gradient of input {}", what, i));
}

TEST(Kernels, EqualTheirFormulaOnTheCpu) {
  for (const auto& op : ops())
    for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kHalf}) compare_with_formula(op, type, torch::kCPU);
}

TEST(Kernels, GradientsAreFiniteDifferences) {
  for (const auto& op : ops()) {
    const std::string name = op.name;
    if (name == "linear_cross_entropy") continue;               // its softmax is fp32 whatever comes in
    if (name.find("quantized") != std::string::npos) continue;  // its values are fp32 at best
    torch::manual_seed(3);
    auto inputs = op.inputs(torch::kDouble);
    if (inputs[0].numel() > 2000) continue;  // many evaluations; its formula's gradients serve
    for (size_t i = 0; i < op.num_differentiable; ++i) inputs[i] = inputs[i].contiguous().requires_grad_(true);
    const auto y = op.run(inputs);
    const auto weights = torch::randn_like(y);
    (y * weights).sum().backward();
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < op.num_differentiable; ++i) {
      auto flat = inputs[i].view(-1);
      for (int64_t k = 0; k < flat.size(0); k += 11) {
        constexpr double kStep = 1e-5;
        const double kept = flat[k].item<double>();
        const auto at = [&](double value) {
          flat[k] = value;
          return (op.run(inputs) * weights).sum().item<double>();
        };
        const double slope = (at(kept + kStep) - at(kept - kStep)) / (2 * kStep);
        flat[k] = kept;
        EXPECT_NEAR(inputs[i].grad().view(-1)[k].item<double>(), slope, 1e-6 * std::max(1.0, std::abs(slope)))
            << op.name << ", input " << i << ", element " << k;
      }
    }
  }
}

TEST(Kernels, PackedSamplesAttendAsIfAlone) {
  torch::manual_seed(6);
  const std::vector<int64_t> lengths{70, 1, 63, 130, 37};
  const auto starts = starts_of({{70, 1, 63, 130, 37}});
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const auto whole = [&] { return random({1, 2, 301, 16}, type).requires_grad_(true); };
    const std::vector<Tensor> packed{whole(), whole(), whole()};
    const auto y = attention(packed[0], packed[1], packed[2], true, {}, starts);
    const auto dy = torch::randn_like(y);
    y.backward(dy);
    std::vector<std::vector<Tensor>> expected(4);  // y and the gradients, sample by sample
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      std::vector<Tensor> alone;
      for (const auto& x : packed) alone.push_back(x.detach().narrow(2, begin, length).clone().requires_grad_(true));
      const auto own = attention(alone[0], alone[1], alone[2], true, {});
      own.backward(dy.narrow(2, begin, length));
      expected[0].push_back(own.detach());
      for (size_t i = 0; i < 3; ++i) expected[i + 1].push_back(alone[i].grad());
      begin += length;
    }
    const double tolerance = type == torch::kFloat ? 1e-5 : 2e-2;
    expect_near(y.detach(), to_double(torch::cat(expected[0], 2)), tolerance, "y");
    for (size_t i = 0; i < 3; ++i)
      expect_near(packed[i].grad(), to_double(torch::cat(expected[i + 1], 2)), tolerance, "gradient");
  }
}

TEST(Kernels, ComposedOperationsComputeTheSame) {
  torch::manual_seed(4);
  const auto x = random({2, 5, 12}, torch::kFloat), y = random({2, 5, 12}, torch::kFloat);
  const auto weight = random({12}, torch::kFloat);
  const auto near = [](const Tensor& a, const Tensor& b) { expect_near(a, to_double(b), 1e-5, "composed"); };
  near(composed_rms_norm(x, weight, 1e-5), rms_norm(x, weight, 1e-5));
  near(composed_swiglu(x, y), swiglu(x, y));
  const auto rope_in = rope_inputs(torch::kFloat);
  near(composed_rope(rope_in[0], rope_in[1], rope_in[2]), rope(rope_in[0], rope_in[1], rope_in[2]));
  const auto a = random({4, 12}, torch::kFloat), b = random({19, 4}, torch::kFloat),
             w = random({19, 12}, torch::kFloat);
  near(composed_lora(torch::linear(x, w), x, a, b, 0.5), lora_linear(x, {}, {w}, {}, a, b, 0.5));
  const auto labels = torch::randint(19, {2, 5}, torch::kLong);
  const auto rows = x.narrow(1, 0, 4).reshape({-1, 12});
  near(composed_cross_entropy(torch::linear(x, w), labels),
       linear_cross_entropy(rows, w, labels.narrow(1, 1, 4).flatten(), 3));
}

TEST(Kernels, ComposedAdamWIsTheFusedOne) {
  torch::manual_seed(5);
  const auto start = random({33}, torch::kFloat), gradient = random({33}, torch::kFloat);
  auto tensor = start.clone(), average = torch::zeros({33}), square = torch::zeros({33});
  composed_adamw({tensor}, {gradient}, {average}, {square}, 0.1, {0.9, 0.999}, 0.01, 1e-8, 1);
  auto fused = start.clone(), first = torch::zeros({33}), second = torch::zeros({33}), step = torch::ones({});
  std::vector<Tensor> parameters{fused}, gradients{gradient}, averages{first}, squares{second}, none, steps{step};
  at::_fused_adamw_(parameters, gradients, averages, squares, none, steps, 0.1, 0.9, 0.999, 0.01, 1e-8, false, false);
  expect_near(tensor, to_double(fused), 1e-6, "parameters");
  expect_near(average, to_double(first), 1e-6, "first moment");
  expect_near(square, to_double(second), 1e-6, "second moment");
}

TEST(Kernels, ChunkedLossEqualsWholeLoss) {
  torch::manual_seed(1);
  const auto hidden = torch::randn({50, 16}), weight = torch::randn({40, 16});
  const auto targets = torch::randint(40, {50}, torch::kLong);
  const auto run = [&](int64_t chunk) {
    const auto h = hidden.clone().requires_grad_(true), w = weight.clone().requires_grad_(true);
    const auto loss = linear_cross_entropy(h, w, targets, chunk);
    loss.backward();
    return Inputs{loss.detach(), h.grad(), w.grad()};
  };
  const auto whole = run(0);
  for (const int64_t chunk : {1, 7, 50, 64}) {
    const auto parts = run(chunk);
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(torch::allclose(parts[i], whole[i], 1e-5, 1e-5)) << chunk;
  }
}

TEST(Kernels, LinearOfFewRowsEqualsTheMatrixProduct) {
  const torch::NoGradGuard no_grad;
  for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kHalf})
    for (const int64_t rows : {1, 3, 4, 5})
      for (const int64_t size : {1, 63, 64, 200}) {
        torch::manual_seed(rows * 1000 + size);
        const auto x = random({rows, 1, size}, type), weight = random({33, size}, type), bias = random({33}, type);
        for (const auto& b : {bias, Tensor()}) {
          const auto expected = torch::linear(to_double(x), to_double(weight), b.defined() ? to_double(b) : b);
          expect_near(linear(x, weight, b), expected, tolerance(type), fmt::format("{} rows of {}", rows, size));
        }
      }
}

/// Built without OpenMP, the loop would run on the caller alone, rightly and slowly.
TEST(Kernels, ThreadsShareTheWork) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  at::parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  at::set_num_threads(before);
  EXPECT_EQ(threads.size(), 2u);
}

TEST(Kernels, TiedEmbeddingAndHeadShareOneGradient) {
  torch::manual_seed(4);
  const auto ids = torch::randint(40, {2, 9}), targets = torch::randint(40, {18});
  const auto gradient = [&](const TiedGradient& tied, bool supervised) {
    torch::manual_seed(6);
    auto weight = torch::randn({40, 16}).requires_grad_(true);
    const auto hidden = embedding(weight, ids, tied).square().flatten(0, 1);
    const auto kept = supervised ? hidden : hidden.narrow(0, 0, 0);
    linear_cross_entropy(kept, weight, supervised ? targets : targets.narrow(0, 0, 0), 8, tied).backward();
    return weight.grad();
  };
  for (const bool supervised : {true, false}) {
    const auto apart = gradient({}, supervised),
               together = gradient(c10::make_intrusive<TiedGradientSlot>(), supervised);
    EXPECT_TRUE(torch::allclose(apart, together, 1e-5, 1e-6));
    EXPECT_EQ(together.abs().sum().item<float>() > 0, supervised);
  }
}

TEST(Kernels, NoLabelsGiveZeroLoss) {
  const auto hidden = torch::randn({0, 16}).requires_grad_(true);
  const auto loss = linear_cross_entropy(hidden, torch::randn({40, 16}), torch::empty({0}, torch::kLong), 8);
  EXPECT_EQ(loss.item<float>(), 0);
  loss.backward();
}

TEST(Kernels, EqualTheirFormulaOnCuda) {
  if (const auto missing = cuda_is_missing(); !missing.empty()) GTEST_SKIP() << missing;
  for (const auto& op : ops()) {
    const std::string name = op.name;
    if (name.starts_with("rms_norm") || name.starts_with("swiglu") || name.starts_with("rope") ||
        name == "linear_cross_entropy")
      for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kHalf})
        compare_with_formula(op, type, torch::kCUDA);
  }
}

}  // namespace
}  // namespace vlmtune::kernels
