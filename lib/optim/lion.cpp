#include "lib/optim/lion.h"

#include "kernels/optimizer_steps.h"

namespace vlmtune {

Lion::Lion(std::vector<TrainedTensor> tensors, const std::array<double, 2>& betas, bool on_host)
    : Optimizer(std::move(tensors), on_host), betas_(betas) {}

Optimizer::State Lion::fresh_state(const torch::Tensor& tensor) const { return {{"exp_avg", zeros_for(tensor)}}; }

void Lion::update(const TrainedTensor& trained, const torch::Tensor& gradient, State& state, double rate) {
  auto tensor = trained.tensor;
  kernels::lion_step(tensor, gradient, state.at("exp_avg"), {rate, betas_, 0, trained.weight_decay});
}

}  // namespace vlmtune
