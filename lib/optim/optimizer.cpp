#include "lib/optim/optimizer.h"

#include "lib/base/errors.h"
#include "lib/memory/scope.h"

namespace vlmtune {

Optimizer::Optimizer(std::vector<TrainedTensor> tensors) : tensors_(std::move(tensors)), states_(tensors_.size()) {}

void Optimizer::step(double rate_factor) {
  const torch::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::kOptimizer);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& trained = tensors_[i];
    const auto gradient = trained.tensor.grad();
    if (!gradient.defined()) continue;
    const ModuleScope module(trained.module);
    if (states_[i].empty()) states_[i] = fresh_state(trained.tensor);
    update(trained, gradient.to(trained.tensor.scalar_type()), states_[i], trained.learning_rate * rate_factor);
  }
}

std::map<std::string, torch::Tensor> Optimizer::state() const {
  std::map<std::string, torch::Tensor> all;
  for (size_t i = 0; i < tensors_.size(); ++i)
    for (const auto& [part, tensor] : states_[i]) all[tensors_[i].name + "." + part] = tensor;
  return all;
}

void Optimizer::load_state(const std::map<std::string, torch::Tensor>& state) {
  size_t used = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& name = tensors_[i].name;
    auto fresh = fresh_state(tensors_[i].tensor);
    if (!state.contains(name + "." + fresh.begin()->first)) continue;
    for (auto& [part, tensor] : fresh) {
      const auto at = state.find(name + "." + part);
      if (at == state.end()) throw input_error("the saved optimizer state lacks {}.{}", name, part);
      if (at->second.sizes() != tensor.sizes() || at->second.scalar_type() != tensor.scalar_type())
        throw input_error("the saved optimizer state {}.{} has another shape or type", name, part);
      tensor.copy_(at->second);
      ++used;
    }
    states_[i] = std::move(fresh);
  }
  if (used != state.size())
    throw input_error(
        "the saved optimizer state holds tensors that this run does not train, or is another optimizer's");
}

}  // namespace vlmtune
