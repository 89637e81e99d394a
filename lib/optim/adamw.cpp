#include "lib/optim/adamw.h"

#include "kernels/composed.h"
#include "lib/base/errors.h"
#include "lib/memory/scope.h"

namespace vlmtune {

AdamW::AdamW(std::vector<TrainedTensor> tensors, const AdamWOptions& options)
    : tensors_(std::move(tensors)), moments_(tensors_.size()), options_(options) {}

void AdamW::step(double rate_factor) {
  const torch::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::kOptimizer);
  std::array<std::vector<torch::Tensor>, 4> composed;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    auto& [name, tensor, rate, decay, module] = tensors_[i];
    const ModuleScope of_tensor(module);
    auto& moments = moments_[i];
    if (!tensor.grad().defined()) continue;
    if (!moments.average.defined())
      moments = {torch::zeros_like(tensor), torch::zeros_like(tensor), torch::zeros({}, torch::kFloat)};
    moments.step += 1;  // the fused kernel leaves counting to its caller
    if (kernels::is_composed(tensor)) {
      const std::array operands{tensor, tensor.grad(), moments.average, moments.square};
      for (size_t k = 0; k < operands.size(); ++k) composed[k].push_back(operands[k]);
      continue;
    }
    std::vector<torch::Tensor> parameters{tensor}, gradients{tensor.grad().to(tensor.scalar_type())},
        averages{moments.average}, squares{moments.square}, maxima, steps{moments.step};
    at::_fused_adamw_(parameters, gradients, averages, squares, maxima, steps, rate * rate_factor, options_.betas[0],
                      options_.betas[1], decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
  }
  const auto& [parameters, gradients, averages, squares] = composed;
  if (!parameters.empty())
    kernels::composed_adamw(parameters, gradients, averages, squares, tensors_[0].learning_rate, options_.betas, 0,
                            options_.eps, 1);
}

std::map<std::string, torch::Tensor> AdamW::state() const {
  std::map<std::string, torch::Tensor> state;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!moments_[i].average.defined()) continue;
    state[tensors_[i].name + ".exp_avg"] = moments_[i].average;
    state[tensors_[i].name + ".exp_avg_sq"] = moments_[i].square;
    state[tensors_[i].name + ".step"] = moments_[i].step;
  }
  return state;
}

void AdamW::load_state(const std::map<std::string, torch::Tensor>& state) {
  size_t used = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto take = [&](const char* part, torch::IntArrayRef shape) {
      const auto at = state.find(tensors_[i].name + part);
      if (at == state.end()) throw input_error("the saved optimizer state lacks {}{}", tensors_[i].name, part);
      if (at->second.sizes() != shape)
        throw input_error("the saved optimizer state {}{} has another shape", tensors_[i].name, part);
      ++used;
      return at->second.clone();
    };
    if (!state.contains(tensors_[i].name + ".step")) continue;
    const auto shape = tensors_[i].tensor.sizes();
    moments_[i] = {take(".exp_avg", shape), take(".exp_avg_sq", shape), take(".step", {})};
  }
  if (used != state.size()) throw input_error("the saved optimizer state holds tensors that this run does not train");
}

}  // namespace vlmtune
