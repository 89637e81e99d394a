#include "lib/optim/adamw.h"

#include "kernels/composed.h"
#include "kernels/optimizer_steps.h"

namespace vlmtune {
namespace {

constexpr int64_t kSmallestIn8Bits = 4096;  // bitsandbytes' min_8bit_size

}  // namespace

AdamW::AdamW(std::vector<TrainedTensor> tensors, const AdamWOptions& options, bool on_host)
    : Optimizer(std::move(tensors), on_host), options_(options) {}

Optimizer::State AdamW::fresh_state(const torch::Tensor& tensor) const {
  return {{"exp_avg", zeros_for(tensor)},
          {"exp_avg_sq", zeros_for(tensor)},
          {"step", torch::zeros({}, tensor.options().dtype(torch::kFloat))}};  // as the fused kernel wants it
}

void AdamW::update(const TrainedTensor& trained, const torch::Tensor& gradient, State& state, double rate) {
  state.at("step") += 1;  // the fused kernel leaves counting to its caller
  std::vector<torch::Tensor> parameters{trained.tensor}, gradients{gradient}, averages{state.at("exp_avg")},
      squares{state.at("exp_avg_sq")}, maxima, steps{state.at("step")};
  if (kernels::is_composed(trained.tensor)) {
    const std::array operands{&parameters, &gradients, &averages, &squares};
    for (size_t k = 0; k < operands.size(); ++k) composed_[k].push_back(operands[k]->front());
    return;
  }
  at::_fused_adamw_(parameters, gradients, averages, squares, maxima, steps, rate, options_.betas[0], options_.betas[1],
                    trained.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
}

void AdamW::step(double rate_factor, uint64_t seed) {
  Optimizer::step(rate_factor, seed);
  auto& [parameters, gradients, averages, squares] = composed_;
  if (parameters.empty()) return;
  const torch::NoGradGuard no_grad;
  kernels::composed_adamw(parameters, gradients, averages, squares, tensors()[0].learning_rate, options_.betas, 0,
                          options_.eps, 1);
  for (auto& operands : composed_) operands.clear();
}

Optimizer::State AdamW8bit::fresh_state(const torch::Tensor& tensor) const {
  if (tensor.numel() < kSmallestIn8Bits) return AdamW::fresh_state(tensor);
  const auto blocks = kernels::num_state_blocks(tensor.numel());
  const auto codes = tensor.options().dtype(torch::kByte), scales = tensor.options().dtype(torch::kFloat);
  return {{"exp_avg.codes", torch::zeros({tensor.numel()}, codes)},
          {"exp_avg.scales", torch::zeros({blocks}, scales)},
          {"exp_avg_sq.codes", torch::zeros({tensor.numel()}, codes)},
          {"exp_avg_sq.scales", torch::zeros({blocks}, scales)},
          {"step", torch::zeros({}, torch::kFloat)}};
}

void AdamW8bit::update(const TrainedTensor& trained, const torch::Tensor& gradient, State& state, double rate) {
  if (!state.contains("exp_avg.codes")) return AdamW::update(trained, gradient, state, rate);
  state.at("step") += 1;
  auto tensor = trained.tensor;
  kernels::adamw_8bit_step(tensor, gradient,
                           {state.at("exp_avg.codes"), state.at("exp_avg.scales"), state.at("exp_avg_sq.codes"),
                            state.at("exp_avg_sq.scales")},
                           {rate, options().betas, options().eps, trained.weight_decay},
                           state.at("step").item<double>());
}

}  // namespace vlmtune
