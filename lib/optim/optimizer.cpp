#include "lib/optim/optimizer.h"

#include "kernels/composed.h"
#include "kernels/copy_across.h"
#include "kernels/optimizer_steps.h"
#include "lib/base/errors.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"

namespace vlmtune {
namespace {

constexpr const char* kMaster = "master";

}  // namespace

Optimizer::Optimizer(std::vector<TrainedTensor> tensors, bool on_host)
    : tensors_(std::move(tensors)), states_(tensors_.size()), on_host_(on_host) {}

torch::Tensor Optimizer::zeros_for(const torch::Tensor& tensor) {
  return torch::zeros(tensor.sizes(),
                      kernels::is_composed(tensor) ? tensor.options() : tensor.options().dtype(torch::kFloat));
}

void Optimizer::step(double rate_factor, uint64_t seed) {
  for (size_t i = 0; i < tensors_.size(); ++i) step_one(i, rate_factor, seed);
}

void Optimizer::step_one(size_t index, double rate_factor, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::kOptimizer);
  const auto& trained = tensors_[index];
  const auto gradient = trained.gradient();
  if (!gradient.defined()) return;
  const ModuleScope module(trained.module);
  auto& state = states_[index];
  const double rate = trained.learning_rate * rate_factor;
  if (on_host_) {
    const auto here = trained.host_gradient ? gradient : stow(gradient).for_host();
    const HostScope host;
    if (state.empty()) state = fresh_host_state(trained.tensor);
    auto master = trained;
    master.tensor = state.at(kMaster);
    update(master, here.to(torch::kFloat), state, rate);
    // The master changes next when a gradient has come that left the device behind this copy.
    kernels::copy_across(trained.tensor, master.tensor.to(trained.tensor.scalar_type()));
    return;
  }
  if (state.empty()) state = fresh_state(trained.tensor);
  const auto type = trained.tensor.scalar_type();
  if (type == torch::kFloat || kernels::is_composed(trained.tensor)) {
    update(trained, gradient.to(type), state, rate);
    return;
  }
  auto wide = trained;
  wide.tensor = trained.tensor.to(torch::kFloat);
  update(wide, gradient.to(torch::kFloat), state, rate);
  kernels::round_stochastically(trained.tensor, wide.tensor, seed + index);
}

Optimizer::State Optimizer::fresh_host_state(const torch::Tensor& tensor) const {
  const auto master = stow(tensor).for_host().to(torch::kFloat);
  auto state = fresh_state(master);
  state[kMaster] = master;
  return state;
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
    auto fresh = on_host_ ? fresh_host_state(tensors_[i].tensor) : fresh_state(tensors_[i].tensor);
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
