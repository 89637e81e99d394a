// AdamW (Loshchilov & Hutter 2017, arXiv 1711.05101), one fused pass over parameter, gradient and both moments.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "lib/optim/trained_tensor.h"

namespace vlmtune {

struct AdamWOptions {
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
};

class AdamW {
 public:
  AdamW(std::vector<TrainedTensor> tensors, const AdamWOptions& options);

  /// One update with each tensor's learning rate times `rate_factor`. Tensors without a gradient stay as they are.
  void step(double rate_factor);

  const std::vector<TrainedTensor>& tensors() const { return tensors_; }

  /// The moments and step counts: "<name>.exp_avg", "<name>.exp_avg_sq", "<name>.step". Tensors that were never updated
  /// have none.
  std::map<std::string, torch::Tensor> state() const;
  /// Puts a saved state back. Errors: input_error that names a tensor of another shape or of no parameter.
  void load_state(const std::map<std::string, torch::Tensor>& state);

 private:
  struct Moments {
    torch::Tensor average, square, step;  // step: a fp32 scalar, as the fused kernel wants it
  };
  std::vector<TrainedTensor> tensors_;
  std::vector<Moments> moments_;
  AdamWOptions options_;
};

}  // namespace vlmtune
