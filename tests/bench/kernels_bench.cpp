// Kernels beside the machine's limits, measured in the same run: ops bound by memory as a fraction of the rate of a STREAM
// triad (McCalpin 1995), ops made of products as a fraction of the rate of LibTorch's own product of that type.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <string_view>

#include "kernels/attention.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/lora_linear.h"
#include "kernels/optimizer_steps.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "lib/optim/adamw.h"

namespace vlmtune {
namespace {

using kernels::QuantType;
using torch::Tensor;

constexpr int kFewestRounds = 5;
constexpr double kSeconds = 2;  // of rounds, at least
// Of ops bound by memory: more than a cache holds, and results of 16 MB, whose memory is used again; that of larger ones comes
// from the kernel each time, page by page.
constexpr int64_t kTokens = 2048, kHidden = 4096;
const auto kBf16 = torch::dtype(torch::kBFloat16);

/// Something to time, and how many bytes it moves or operations it does.
struct Run {
  double work = 0;
  std::function<void()> run;
};

double seconds(const Run& r) {
  const auto begin = std::chrono::steady_clock::now();
  r.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// op's rate over the limit's, the best of either in alternating runs: other programs only ever take away from it.
double ratio(const Run& op, const Run& limit) {
  limit.run();  // memory is touched for the first time
  op.run();
  double best_op = 0, best_limit = 0, spent = 0;
  for (int round = 0; round < kFewestRounds || spent < kSeconds; ++round) {
    const double of_limit = seconds(limit), of_op = seconds(op);
    spent += of_limit + of_op;
    best_limit = std::max(best_limit, limit.work / of_limit);
    best_op = std::max(best_op, op.work / of_op);
  }
  return best_op / best_limit;
}

double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

Run triad() {
  constexpr int64_t kCount = 1 << 23;
  const auto a = torch::empty({kCount}), b = torch::rand({kCount}), c = torch::rand({kCount});
  return {bytes_of({a, b, c}), [=] {
            float* to = a.data_ptr<float>();
            const float *x = b.data_ptr<float>(), *y = c.data_ptr<float>();
            at::parallel_for(0, kCount, 1 << 14, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) to[i] = x[i] + 3.0f * y[i];
            });
          }};
}

Run product(int64_t m, int64_t k, int64_t n, torch::ScalarType type) {
  const auto x = torch::randn({m, k}).to(type), weight = torch::randn({n, k}).to(type);
  return {2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n),
          [=] { at::linear(x, weight); }};
}

/// The gradients of `inputs`, of a graph that is made once.
Run backward_of(double work, const Tensor& y, const std::vector<Tensor>& inputs) {
  const auto dy = torch::randn(y.sizes()).to(y.scalar_type());
  return {work, [=] { torch::autograd::grad({y}, inputs, {dy}, /*retain_graph=*/true); }};
}

class Bench {
 public:
  Bench(bool json, std::string_view filter) : json_(json), filter_(filter) {}

  /// `make` is only called for what is asked for.
  void report(const std::string& name, double target, const std::function<std::pair<Run, Run>()>& make) const {
    if (name.find(filter_) == std::string::npos) return;
    const auto [op, limit] = make();
    const double value = ratio(op, limit);
    if (json_)
      fmt::print("{{\"name\": \"{}\", \"ratio\": {:.3f}}}\n", name, value);
    else
      fmt::print("{:<44} {:5.2f} {}\n", name, value, target <= 0 ? "" : value >= target ? "ok" : "below its target");
    std::fflush(stdout);
  }

 private:
  bool json_;
  std::string_view filter_;
};

constexpr double kOfBandwidth = 0.8, kOfProduct = 0.7;

void bound_by_memory(const Bench& bench) {
  const auto against_triad = [&](const std::string& name, const std::function<Run()>& make) {
    bench.report(name, kOfBandwidth, [&] { return std::pair(make(), triad()); });
  };
  const auto x = [] { return torch::randn({kTokens, kHidden}).to(torch::kBFloat16); };
  against_triad("rms_norm_forward", [&] {
    const auto in = x(), weight = torch::ones({kHidden}, kBf16);
    return Run{bytes_of({in, in}), [=] { kernels::rms_norm(in, weight, 1e-6); }};
  });
  against_triad("rms_norm_backward", [&] {
    const auto in = x().requires_grad_(), weight = torch::ones({kHidden}, kBf16);
    return backward_of(bytes_of({in, in, in}), kernels::rms_norm(in, weight, 1e-6), {in});
  });
  against_triad("swiglu_forward", [&] {
    const auto gate = x(), up = x();
    return Run{bytes_of({gate, up, up}), [=] { kernels::swiglu(gate, up); }};
  });
  against_triad("swiglu_backward", [&] {
    const auto gate = x().requires_grad_(), up = x().requires_grad_();
    return backward_of(bytes_of({gate, up, up, gate, up}), kernels::swiglu(gate, up), {gate, up});
  });
  against_triad("rope", [&] {
    const auto q =
        torch::randn({2, kTokens / 2, 32, 128}).to(torch::kBFloat16).transpose(1, 2);  // as projections give it
    const auto cos = torch::rand({1, 1, kTokens / 2, 128}).to(torch::kBFloat16), sin = cos.clone();
    return Run{bytes_of({q, q}), [=] { kernels::rope(q, cos, sin); }};
  });
  const auto step = [](auto make) {
    return [make] {
      const auto p = torch::randn({kHidden, kHidden}), g = torch::randn({kHidden, kHidden});
      return make(p, g);
    };
  };
  const auto optimizer = [](auto optimizer, double bytes, const Tensor& g) {
    return Run{bytes, [=] {
                 optimizer->tensors()[0].tensor.mutable_grad() = g;
                 optimizer->step(1);
               }};
  };
  const auto trained = [](Tensor p) {
    p.requires_grad_();
    return std::vector<TrainedTensor>{{.name = "p", .tensor = p, .learning_rate = 1e-4, .weight_decay = 0.1}};
  };
  against_triad(
      "adamw", step([&](const Tensor& p, const Tensor& g) {
        return optimizer(std::make_shared<AdamW>(trained(p), AdamWOptions()), bytes_of({p, p, p, p, p, p, g}), g);
      }));
  against_triad("adamw8bit", step([&](const Tensor& p, const Tensor& g) {  // a byte a moment
                  return optimizer(std::make_shared<AdamW8bit>(trained(p), AdamWOptions()), bytes_of({p, p, p, g}), g);
                }));
  against_triad("lion", step([&](const Tensor& p, const Tensor& g) {
                  const auto momentum = torch::zeros_like(p);
                  return Run{bytes_of({p, p, momentum, momentum, g}), [=] {
                               auto parameter = p, moment = momentum;
                               kernels::lion_step(parameter, g, moment, {.rate = 1e-4});
                             }};
                }));
  for (const auto& [name, type] :
       {std::pair("nf4", QuantType::kNf4), {"int4", QuantType::kInt4}, {"int8", QuantType::kInt8}})
    against_triad(fmt::format("dequantize_{}", name), [type = type] {
      const auto weight = kernels::quantize(torch::randn({kTokens, kHidden}), type, true);
      const auto bytes = bytes_of({weight->codes, weight->scales}) + 2.0 * static_cast<double>(weight->numel());
      return Run{bytes, [=] { kernels::dequantize(*weight, torch::kBFloat16); }};
    });
}

std::string short_name(torch::ScalarType type) { return type == torch::kFloat ? "fp32" : "bf16"; }

void made_of_products(const Bench& bench) {
  for (const auto& [name, type] :
       {std::pair("nf4", QuantType::kNf4), {"int4", QuantType::kInt4}, {"int8", QuantType::kInt8}})
    for (const int64_t tokens : {512, 1024})
      for (const int64_t out : {4096, 11008}) {
        const auto prefix = fmt::format("linear_{}_{}x4096x{}", name, tokens, out);
        const auto limit = [=] { return product(tokens, 4096, out, torch::kBFloat16); };
        const auto weight = [type = type, out] { return kernels::quantize(torch::randn({out, 4096}), type, true); };
        bench.report(prefix + "_forward", kOfProduct, [&] {
          const auto x = torch::randn({tokens, 4096}).to(torch::kBFloat16);
          const auto base = limit();
          return std::pair(Run{base.work, [=, weight = weight()] { kernels::quantized_product(x, *weight, {}); }},
                           base);
        });
        bench.report(prefix + "_backward", kOfProduct, [&] {
          const auto dy = torch::randn({tokens, out}).to(torch::kBFloat16);
          const auto base = limit();
          return std::pair(Run{base.work, [=, weight = weight()] { kernels::quantized_input_gradient(dy, *weight); }},
                           base);
        });
      }
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const auto kind = short_name(type);
    const auto limit = [type] { return product(512, 4096, 4096, type); };
    const auto lora = [type] {
      const auto x = torch::randn({512, 4096}).to(type).requires_grad_();
      const auto a = torch::randn({16, 4096}).requires_grad_(), b = torch::randn({4096, 16}).requires_grad_();
      const kernels::BaseWeight weight{torch::randn({4096, 4096}).to(type)};
      return std::tuple(x, a, b, weight);
    };
    bench.report("lora_linear_forward_" + kind, 0, [&] {
      const auto [x, a, b, weight] = lora();
      const auto base = limit();
      return std::pair(Run{base.work, [=] { kernels::lora_linear(x, {}, weight, {}, a, b, 2); }}, base);
    });
    bench.report("lora_linear_backward_" + kind, 0, [&] {
      const auto [x, a, b, weight] = lora();
      const auto base = limit();
      return std::pair(backward_of(base.work, kernels::lora_linear(x, {}, weight, {}, a, b, 2), {x, a, b}), base);
    });
    bench.report("linear_cross_entropy_" + kind, 0, [&] {  // the gradient of the hidden states comes with it
      const auto hidden = torch::randn({512, 4096}).to(type).requires_grad_();
      const auto weight = torch::randn({8192, 4096}).mul_(0.01).to(type);
      const auto targets = torch::randint(8192, {512});
      const auto base = product(512, 4096, 8192, type);
      return std::pair(Run{2 * base.work, [=] { kernels::linear_cross_entropy(hidden, weight, targets, 256); }}, base);
    });
    constexpr int64_t kHeads = 32, kLength = 1024, kSize = 128;
    const double pairs = 0.5 * kHeads * kLength * kLength;  // causal
    const auto head = [type] { return torch::randn({1, kHeads, kLength, kSize}).to(type).requires_grad_(); };
    bench.report("attention_forward_" + kind, 0, [&] {
      const auto q = head(), k = head(), v = head();
      return std::pair(Run{4.0 * kSize * pairs, [=] { kernels::attention(q, k, v, true, {}); }}, limit());
    });
    bench.report("attention_backward_" + kind, 0, [&] {
      const auto q = head(), k = head(), v = head();
      return std::pair(backward_of(10.0 * kSize * pairs, kernels::attention(q, k, v, true, {}), {q, k, v}), limit());
    });
  }
}

}  // namespace
}  // namespace vlmtune

/// usage: kernels_bench [--json] [PART OF A NAME]
int main(int argc, char** argv) {
  bool json = false;
  std::string_view filter;
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--json")
      json = true;
    else
      filter = argv[i];
  torch::manual_seed(1);
  const vlmtune::Bench bench(json, filter);
  vlmtune::bound_by_memory(bench);
  vlmtune::made_of_products(bench);
}
