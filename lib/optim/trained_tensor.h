// What the optimizer trains: a tensor, its name, and the rate and decay it is trained with.
#pragma once
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/memory/transfer.h"

namespace vlmtune {

/// Nothing before the first backward.
using HostGradient = std::optional<Arriving>;

struct TrainedTensor {
  std::string name;
  torch::Tensor tensor;      ///< a leaf that requires a gradient
  double learning_rate = 0;  ///< at the schedule's peak
  double weight_decay = 0;
  std::string module = {};  ///< the part of the model that accounts of memory put it under
  /// Where the gradient is kept when it does not stay with the tensor: on the host.
  std::shared_ptr<HostGradient> host_gradient = {};

  torch::Tensor gradient() const {
    if (!host_gradient) return tensor.grad();
    return *host_gradient ? (*host_gradient)->for_host() : torch::Tensor();
  }
};

/// Adds what has become the tensor's gradient to the one on the host.
void move_gradient_to_host(const TrainedTensor& trained);

/// The Euclidean norm of all gradients together; with max_norm > 0 they are scaled so that it is at most max_norm, as
/// torch.nn.utils.clip_grad_norm_ does. Tensors without a gradient are passed over. Not finite if any gradient is not.
double clip_gradients(const std::vector<TrainedTensor>& tensors, double max_norm);

/// The name of the first tensor whose gradient holds a number that is not finite; empty when there is none.
std::string first_bad_gradient(const std::vector<TrainedTensor>& tensors);

void zero_gradients(const std::vector<TrainedTensor>& tensors);

}  // namespace vlmtune
