// The blocks against plain LibTorch expressions of the same maths, forward and backward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/linear_cross_entropy.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "lib/base/errors.h"
#include "lib/nn/activation.h"
#include "lib/nn/attention.h"
#include "lib/nn/recompute.h"

namespace vlmtune {
namespace {

double difference(const Tensor& a, const Tensor& b) {
  return a.numel() == 0 ? 0 : (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
}

/// A unit in the last place of values around 1.
double precision(torch::ScalarType type) {
  return type == torch::kFloat ? 1.2e-7 : type == torch::kBFloat16 ? 7.8e-3 : 9.8e-4;
}

Tensor leaf(torch::IntArrayRef shape, torch::ScalarType type = torch::kFloat) {
  return torch::randn(shape).to(type).requires_grad_(true);
}

/// Compares y and the gradients of both functions with respect to `inputs`, within `ulps` units of the type.
void expect_same(const std::function<Tensor()>& ours, const std::function<Tensor()>& oracle,
                 const std::vector<Tensor>& inputs, double ulps) {
  const auto gradients = [&](const Tensor& y) {
    torch::manual_seed(1);
    const auto dy = torch::randn(y.sizes()).to(y.scalar_type());
    return torch::autograd::grad({y}, inputs, {dy});
  };
  const auto y = ours(), z = oracle();
  ASSERT_EQ(y.scalar_type(), z.scalar_type());
  const double unit = precision(inputs.front().scalar_type());
  EXPECT_LE(difference(y, z), ulps * unit * std::max(1.0, z.abs().max().item<double>()));
  const auto ga = gradients(y), gb = gradients(z);
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(ga[i].scalar_type(), gb[i].scalar_type());
    EXPECT_LE(difference(ga[i], gb[i]), ulps * unit * std::max(1.0, gb[i].abs().max().item<double>())) << "input " << i;
  }
}

class NnTest : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(7); }
};

TEST_F(NnTest, RmsNorm) {
  for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    const auto x = leaf({2, 5, 33}, type), weight = leaf({33}, type);
    const auto oracle = [&] {
      const auto wide = x.to(torch::kFloat);
      return weight * (wide * torch::rsqrt(wide.pow(2).mean(-1, true) + 1e-5)).to(type);
    };
    expect_same([&] { return kernels::rms_norm(x, weight, 1e-5); }, oracle, {x, weight}, 16);
  }
  const auto x = leaf({3, 8}, torch::kBFloat16), weight = leaf({8});  // fp32 weight under bf16 activations
  EXPECT_EQ(kernels::rms_norm(x, weight, 1e-6).scalar_type(), torch::kBFloat16);
}

TEST_F(NnTest, Swiglu) {
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const auto gate = leaf({3, 7}, type), up = leaf({3, 7}, type);
    expect_same([&] { return kernels::swiglu(gate, up); }, [&] { return torch::silu(gate) * up; }, {gate, up}, 8);
  }
}

TEST_F(NnTest, Rope) {
  for (const int64_t batch : {1, 2}) {
    const auto x = leaf({2, 3, 5, 12});
    const auto half = torch::rand({batch, 1, 5, 6}) * 6;
    const auto angles = torch::cat({half, half}, -1);
    const auto cos = angles.cos() * 1.1, sin = angles.sin() * 1.1;
    const auto oracle = [&] {
      const auto parts = x.chunk(2, -1);
      return x * cos + torch::cat({-parts[1], parts[0]}, -1) * sin;
    };
    expect_same([&] { return kernels::rope(x, cos, sin); }, oracle, {x}, 8);
  }
}

TEST_F(NnTest, LinearCrossEntropy) {
  const auto targets = torch::randint(0, 19, {11}, torch::kLong);
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    for (const int64_t chunk : {0, 1, 4, 11, 100}) {
      const auto hidden = leaf({11, 6}, type), weight = leaf({19, 6}, type);
      const auto oracle = [&] {
        namespace F = torch::nn::functional;
        return F::cross_entropy(torch::linear(hidden, weight).to(torch::kFloat), targets,
                                F::CrossEntropyFuncOptions().reduction(torch::kSum));
      };
      expect_same([&] { return kernels::linear_cross_entropy(hidden, weight, targets, chunk); }, oracle,
                  {hidden, weight}, 16);
    }
  }
  const auto hidden = leaf({0, 6}), weight = leaf({19, 6});
  const auto loss = kernels::linear_cross_entropy(hidden, weight, torch::zeros({0}, torch::kLong), 4);
  EXPECT_EQ(loss.item<float>(), 0);
  loss.backward();
}

TEST_F(NnTest, LinearCrossEntropyWithFrozenHead) {
  const auto hidden = leaf({5, 6}), targets = torch::randint(0, 19, {5}, torch::kLong);
  const auto weight = torch::randn({19, 6});
  kernels::linear_cross_entropy(hidden, weight, targets, 2).backward();
  EXPECT_TRUE(hidden.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(kernels::linear_cross_entropy(hidden, weight, targets, 2).requires_grad());
}

TEST_F(NnTest, LoraAddsItsProduct) {
  Linear linear(6, 4, true);
  linear.weight = torch::randn({4, 6});
  linear.bias = torch::randn({4});
  linear.lora = std::make_unique<Lora>(Lora{.a = leaf({2, 6}), .b = leaf({4, 2}), .scale = 1.5, .dropout = 0.5});
  const auto x = leaf({3, 6});
  const auto merged = [&] {
    return torch::linear(x, linear.weight + 1.5 * torch::matmul(linear.lora->b, linear.lora->a), linear.bias);
  };
  expect_same([&] { return linear.forward(x); }, merged, {x, linear.lora->a, linear.lora->b}, 16);
  EXPECT_GT(difference(linear.forward(x, true), linear.forward(x)), 1e-3) << "dropout is on while training";
  EXPECT_EQ(linear.forward(x.to(torch::kBFloat16)).scalar_type(), torch::kBFloat16);
  std::vector<std::string> names;
  linear.visit("q", [&](const std::string& name, Tensor&) { names.push_back(name); });
  EXPECT_THAT(names, testing::ElementsAre("q.weight", "q.bias", "q.lora_A.weight", "q.lora_B.weight"));
}

TEST_F(NnTest, DecoderMaskSaysWhichKeysAreSeen) {
  for (const int64_t past : {0, 3})
    for (const int64_t queries : {1, 4})
      for (const int64_t window : {0, 2, 50})
        for (const auto& padding : {std::vector<int64_t>{}, {0, 0}, {2, 0}}) {
          SCOPED_TRACE(fmt::format("past {} queries {} window {} padding {}", past, queries, window, padding));
          const auto mask = decoder_mask(queries, past, padding, window, torch::kFloat);
          ASSERT_FALSE(mask.causal && mask.bias.defined());
          ASSERT_FALSE(mask.causal && past > 0) << "SDPA's causal flag counts keys from the first query";
          for (int64_t b = 0; b < 2; ++b)
            for (int64_t q = 0; q < queries; ++q)
              for (int64_t k = 0; k < past + queries; ++k) {
                const int64_t slot = past + q, first = padding.empty() ? 0 : padding[static_cast<size_t>(b)];
                if (slot < first) continue;  // padding's own output has no meaning
                const bool expected = k <= slot && k >= first && (window == 0 || k > slot - window);
                bool seen = mask.causal ? k <= q : true;
                if (mask.bias.defined())
                  seen = mask.bias[std::min(b, mask.bias.size(0) - 1)][0][q][k].item<float>() == 0;
                EXPECT_EQ(seen, expected) << "row " << b << " query " << q << " key " << k;
              }
        }
}

Attention random_attention() {
  Attention attention({.hidden_size = 12,
                       .num_heads = 4,
                       .num_key_value_heads = 2,
                       .head_dim = 6,
                       .qkv_bias = true,
                       .output_bias = false});
  attention.visit_linears("a", [](const std::string& name, Linear& linear) {
    linear.visit(name, [&](const std::string&, Tensor& slot) {
      slot = (torch::randn(slot.sizes()) / std::sqrt(static_cast<double>(linear.in_features))).requires_grad_(true);
    });
  });
  return attention;
}

TEST_F(NnTest, AttentionWithGroupedHeads) {
  const auto attention = random_attention();
  const auto x = leaf({2, 5, 12});
  const auto oracle = [&] {
    const auto split = [&](const Linear& linear) {
      const auto y = linear.forward(x).view({2, 5, -1, 6}).transpose(1, 2);
      return y.size(1) == 2 ? y.repeat_interleave(2, 1) : y;
    };
    auto scores = torch::matmul(split(attention.q_proj), split(attention.k_proj).transpose(2, 3)) / std::sqrt(6.0);
    scores = scores + torch::full({5, 5}, -std::numeric_limits<float>::infinity()).triu(1);
    const auto y = torch::matmul(scores.softmax(-1), split(attention.v_proj)).transpose(1, 2).reshape({2, 5, 24});
    return torch::linear(y, attention.o_proj.weight);
  };
  const auto ours = [&] {
    return attention.forward(x, nullptr, decoder_mask(5, 0, {}, 0, torch::kFloat), nullptr, 0, false);
  };
  expect_same(ours, oracle,
              {x, attention.q_proj.bias, attention.k_proj.weight, attention.v_proj.weight, attention.o_proj.weight},
              64);
}

TEST_F(NnTest, CachedDecodingIsTheWholeSequence) {
  const torch::NoGradGuard no_grad;
  const auto attention = random_attention();
  const auto x = torch::randn({2, 150, 12});
  for (const std::vector<int64_t>& padding : {std::vector<int64_t>{}, {3, 0}}) {
    const auto whole =
        attention.forward(x, nullptr, decoder_mask(150, 0, padding, 0, torch::kFloat), nullptr, 0, false);
    KvCache cache(1);
    int64_t at = 0;
    for (const int64_t step : {5, 1, 1, 60, 1, 82}) {  // 82 new tokens behind 68: more than one query with a past
      const auto part = attention.forward(x.narrow(1, at, step), nullptr,
                                          decoder_mask(step, at, padding, 0, torch::kFloat), &cache, 0, false);
      EXPECT_LE(difference(part[1], whole[1].narrow(0, at, step)), 1e-5);
      if (at >= 3) {
        EXPECT_LE(difference(part[0], whole[0].narrow(0, at, step)), 1e-5);
      }
      at += step;
      EXPECT_EQ(cache.length(), at);
    }
  }
}

TEST_F(NnTest, KvCacheKeepsForgetsAndReserves) {
  KvCache cache(2);
  EXPECT_EQ(cache.length(), 0);
  cache.reserve(100);
  const auto k = torch::randn({1, 2, 3, 4}), v = torch::randn({1, 2, 3, 4});
  cache.append(1, k, v);
  auto [keys, values] = cache.append(0, k, v);
  const void* buffer = keys.data_ptr();
  std::tie(keys, values) = cache.append(0, k + 1, v + 1);
  EXPECT_EQ(keys.data_ptr(), buffer) << "reserved buffers do not move";
  EXPECT_TRUE(torch::equal(keys, torch::cat({k, k + 1}, 2)));
  EXPECT_TRUE(torch::equal(values, torch::cat({v, v + 1}, 2)));
  cache.truncate(4);
  std::tie(keys, values) = cache.append(0, k + 2, v);
  EXPECT_TRUE(torch::equal(keys, torch::cat({k, (k + 1).narrow(2, 0, 1), k + 2}, 2)));
}

TEST_F(NnTest, RecomputeGivesTheSameBits) {
  const auto w1 = leaf({8, 8}), w2 = leaf({8, 8}), x = leaf({4, 8});
  int runs = 0;
  const std::function<Tensor(const Tensor&)> block = [&](const Tensor& in) {
    ++runs;
    return in + torch::matmul(torch::dropout(torch::gelu(torch::matmul(in, w1)), 0.5, true), w2);
  };
  const auto gradients = [&](bool recomputed) {
    torch::manual_seed(3);
    for (const auto& t : {w1, w2, x}) t.mutable_grad() = Tensor();
    auto y = x;
    for (int i = 0; i < 2; ++i) y = recomputed ? recompute(block, y) : block(y);
    const auto after = torch::rand({1});  // the generator goes on as if nothing had been run twice
    (y * y).sum().backward();
    return std::vector<Tensor>{y.detach(), w1.grad(), w2.grad(), x.grad(), after, torch::rand({1})};
  };
  const auto plain = gradients(false);
  EXPECT_EQ(std::exchange(runs, 0), 2);
  const auto again = gradients(true);
  EXPECT_EQ(std::exchange(runs, 0), 4);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(plain[i], again[i])) << i;
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(recompute(block, x).requires_grad());
  EXPECT_EQ(runs, 1);
}

TEST_F(NnTest, RequireInputGradLetsParametersLearn) {
  const auto w = leaf({3, 3}), frozen = torch::randn({2, 3});
  recompute([&](const Tensor& in) { return torch::matmul(in, w); }, require_input_grad(frozen)).sum().backward();
  EXPECT_TRUE(w.grad().defined());
  EXPECT_FALSE(frozen.requires_grad());
}

TEST_F(NnTest, ActivationsByName) {
  const auto x = torch::linspace(-4, 4, 41);
  const auto of = [&](const char* name) { return activate(parse_activation(name, "here"), x); };
  EXPECT_LE(difference(of("gelu"), 0.5 * x * (1 + torch::erf(x / std::sqrt(2.0)))), 1e-6);
  EXPECT_LE(
      difference(of("gelu_pytorch_tanh"), 0.5 * x * (1 + torch::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))))),
      1e-6);
  EXPECT_LE(difference(of("quick_gelu"), x * torch::sigmoid(1.702 * x)), 1e-6);
  EXPECT_LE(difference(of("silu"), x * torch::sigmoid(x)), 1e-6);
  EXPECT_THROW(parse_activation("mish", "config.json: /hidden_act"), UserError);
}

}  // namespace
}  // namespace vlmtune
