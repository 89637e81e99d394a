// Lion (Chen et al. 2023, arXiv 2302.06675): the sign of an interpolated momentum; half of AdamW's state.
#pragma once
#include <array>

#include "lib/optim/optimizer.h"

namespace vlmtune {

/// State: exp_avg as the tensor.
class Lion : public Optimizer {
 public:
  Lion(std::vector<TrainedTensor> tensors, const std::array<double, 2>& betas, bool on_host = false);

 protected:
  State fresh_state(const torch::Tensor& tensor) const override;
  void update(const TrainedTensor& trained, const torch::Tensor& gradient, State& state, double rate) override;

 private:
  std::array<double, 2> betas_;
};

}  // namespace vlmtune
