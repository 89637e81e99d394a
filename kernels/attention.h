// Scaled dot-product attention that never holds the [Tq, Tk] scores of a head (Dao et al. 2022, arXiv 2205.14135).
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// q [B, H, Tq, d], k and v [B, K, Tk, d] with H a multiple of K -> [B, H, Tq, d]; scores are scaled by 1/sqrt(d) and
/// the softmax is taken in fp32. `causal`: query t sees keys 0..t. `bias` [B or 1, 1, Tq, Tk] is added to the scores.
/// `first_keys` [B, Tq] (int32, never falling along a row): query t sees no key before first_keys[t]; what the cu_seqlens of
/// packed rows say, by query. Blocks of keys that nobody sees are skipped.
torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, bool causal,
                        const torch::Tensor& bias, const torch::Tensor& first_keys = {});

}  // namespace vlmtune::kernels
