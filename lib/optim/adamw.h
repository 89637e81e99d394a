// AdamW (Loshchilov & Hutter 2017, arXiv 1711.05101), one fused pass over parameter, gradient and both moments.
#pragma once
#include <array>

#include "lib/optim/optimizer.h"

namespace vlmtune {

struct AdamWOptions {
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
};

/// State: exp_avg and exp_avg_sq as the tensor, step.
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<TrainedTensor> tensors, const AdamWOptions& options, bool on_host = false);
  void step(double rate_factor, uint64_t seed = 0) override;

 protected:
  State fresh_state(const torch::Tensor& tensor) const override;
  void update(const TrainedTensor& trained, const torch::Tensor& gradient, State& state, double rate) override;
  const AdamWOptions& options() const { return options_; }

 private:
  AdamWOptions options_;
  std::array<std::vector<torch::Tensor>, 4> composed_;  // what a composed step updates together
};

/// AdamW with moments in 8 bits, in blocks of 256 neighbours that share a scale (Dettmers et al. 2021, arXiv 2110.02861), as
/// bitsandbytes has it. State: codes and scales of both moments, step; tensors of fewer than 4096 elements keep fp32 moments.
class AdamW8bit : public AdamW {
 public:
  using AdamW::AdamW;

 protected:
  State fresh_state(const torch::Tensor& tensor) const override;
  void update(const TrainedTensor& trained, const torch::Tensor& gradient, State& state, double rate) override;
};

}  // namespace vlmtune
