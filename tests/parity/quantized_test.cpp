// Weights in few bits against bitsandbytes: the same codes, scales and values, bit for bit.
#include "kernels/quantized.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

void expect_equal(const Tensor& found, const Tensor& expected, const std::string& what) {
  EXPECT_TRUE(torch::equal(found, expected)) << what;
}

TEST(Quantized, Nf4IsBitsandbytes) {
  const Golden golden("quantized");
  for (const auto& name : golden.texts("names")) {
    const auto weight = golden.tensor(name + ".weight");
    const auto plain = kernels::quantize(weight, kernels::QuantType::kNf4, false);
    expect_equal(plain->codes, golden.tensor(name + ".codes"), name + ": codes");
    expect_equal(plain->scales, golden.tensor(name + ".absmax"), name + ": scales");
    expect_equal(kernels::dequantize(*plain, weight.scalar_type()), golden.tensor(name + ".values"), name + ": values");
    const auto twice = kernels::quantize(weight, kernels::QuantType::kNf4, true);
    expect_equal(twice->scales, golden.tensor(name + ".double.absmax"), name + ": codes of scales");
    expect_equal(twice->nested_scales, golden.tensor(name + ".double.nested"), name + ": scales of scales");
    expect_equal(twice->offset.reshape({1}), golden.tensor(name + ".double.offset"), name + ": mean scale");
    expect_equal(kernels::dequantize(*twice, weight.scalar_type()), golden.tensor(name + ".double.values"),
                 name + ": values, scales quantised");
  }
}

TEST(Quantized, PartsAreTheWhole) {
  torch::manual_seed(3);
  const auto weight = torch::randn({37, 100});
  for (const auto type : {kernels::QuantType::kNf4, kernels::QuantType::kInt4, kernels::QuantType::kInt8}) {
    const auto quantized = kernels::quantize(weight, type, true);
    const auto whole = kernels::dequantize(*quantized, torch::kFloat);
    expect_equal(kernels::dequantize(*quantized, {5, 11, 0, 100}, torch::kFloat), whole.narrow(0, 5, 11), "rows");
    expect_equal(kernels::dequantize(*quantized, {0, 37, 33, 50}, torch::kFloat), whole.narrow(1, 33, 50), "columns");
    // The coarsest step between two values, half of it, of the largest magnitude of a block; and the scales' own codes.
    const double step = type == kernels::QuantType::kInt8   ? 1.0 / 127
                        : type == kernels::QuantType::kInt4 ? 1.0 / 7
                                                            : 0.31;
    EXPECT_LE((whole - weight).abs().max().item<double>(), weight.abs().max().item<double>() * (step / 2 + 0.02));
  }
}

TEST(Quantized, ModelEqualsItsDequantisedSelf) {
  WeightOptions options;
  options.quantization.applies = [](const std::string& module) {
    return module.find("language_model.") != std::string::npos;
  };
  const auto dir = golden_path("models/llava-clip-llama");
  const Golden golden("models/llava-clip-llama");
  auto quantized = load_model(dir, options), whole = load_model(dir);
  whole->visit_linears([&](const std::string& name, Linear& linear) {
    if (!options.quantization.applies(name)) return;
    linear.weight =
        kernels::dequantize(*kernels::quantize(linear.weight, kernels::QuantType::kNf4, true), torch::kFloat);
  });
  size_t layers = 0;
  quantized->visit_linears([&](const std::string&, Linear& linear) { layers += linear.quantized ? 1 : 0; });
  EXPECT_EQ(layers, 14U);
  const auto batch = read_batch(golden, whole->config());
  expect_close(forward_logits(*quantized, batch), forward_logits(*whole, batch), 1e-5, "logits");
}

}  // namespace
}  // namespace vlmtune::test
