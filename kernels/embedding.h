// Rows of a matrix looked up by id, where the matrix may be the head's as well (tied embeddings, Press & Wolf 2017, arXiv
// 1608.05859).
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// Where the head's backward leaves its gradient of the tied matrix, for the embedding's, which comes later, to add to: neither
/// makes another matrix.
struct TiedGradientSlot : torch::CustomClassHolder {
  torch::Tensor gradient;  ///< undefined: none was left
};
using TiedGradient = c10::intrusive_ptr<TiedGradientSlot>;

/// weight [V, D], ids [...] (int64, all inside the vocabulary) -> [..., D].
torch::Tensor embedding(const torch::Tensor& weight, const torch::Tensor& ids, const TiedGradient& tied);

}  // namespace vlmtune::kernels
