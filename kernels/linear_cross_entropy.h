// Output projection and cross entropy in one, a chunk of tokens at a time, so that the [tokens, vocabulary] logits never exist.
#pragma once
#include "kernels/embedding.h"

namespace vlmtune::kernels {

/// hidden [T, D], weight [V, D], targets [T] (int64, all valid) -> the sum over tokens of -log softmax(hidden weightᵀ)[target],
/// an fp32 scalar. Logits are computed in hidden's type, their softmax in fp32. With `chunk` > 0 at most so many
/// tokens' logits exist at a time, and gradients are computed in the forward pass, chunk by chunk.
/// Differentiable in hidden and weight.
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& targets, int64_t chunk, const TiedGradient& tied = {});

}  // namespace vlmtune::kernels
