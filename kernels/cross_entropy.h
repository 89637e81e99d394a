// Softmax and cross entropy in the logits' own memory.
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// The sum over rows of -log softmax(logits)[target], an fp32 scalar; logits [T, V], targets [T] (int64, all valid). The logits are
/// used up: with `needs_gradient` they become that sum's gradient. Arithmetic is fp32. Not differentiable itself.
torch::Tensor cross_entropy_(torch::Tensor& logits, const torch::Tensor& targets, bool needs_gradient);

}  // namespace vlmtune::kernels
