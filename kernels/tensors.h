// Small things that several kernels say of tensors.
#pragma once
#include <torch/torch.h>

#include <optional>

namespace vlmtune::kernels {

/// For operators whose schema has "Tensor?": nothing in place of an undefined tensor.
inline std::optional<torch::Tensor> optional_tensor(const torch::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

/// [B, H, T, d] in the memory order of [B, T, H, d], which the projections around attention have.
inline torch::Tensor empty_transposed(const torch::Tensor& like) {
  return torch::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

}  // namespace vlmtune::kernels
