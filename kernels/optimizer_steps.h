// Updates of a parameter in one pass over it, its gradient and its state.
#pragma once
#include <torch/torch.h>

#include <array>

namespace vlmtune::kernels {

struct UpdateOptions {
  double rate = 0;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
};

/// Lion (Chen et al. 2023, arXiv 2302.06675): parameter, gradient and momentum are fp32, of one shape.
void lion_step(torch::Tensor& parameter, const torch::Tensor& gradient, torch::Tensor& momentum,
               const UpdateOptions& options);

/// Both moments of AdamW in 8 bits: uint8 codes [n] and fp32 scales [num_state_blocks(n)] (Dettmers et al. 2021, arXiv
/// 2110.02861).
struct Moments8bit {
  torch::Tensor average_codes, average_scales, square_codes, square_scales;
};
int64_t num_state_blocks(int64_t count);

/// AdamW's step number `step` (from 1): the parameter and gradient are fp32.
void adamw_8bit_step(torch::Tensor& parameter, const torch::Tensor& gradient, const Moments8bit& moments,
                     const UpdateOptions& options, double step);

/// parameter (bf16) = values (fp32), each rounded up or down with the probability that makes it right on average (Gupta et al.
/// 2015, arXiv 1502.02551); the random numbers are a function of `seed` and the place.
void round_stochastically(const torch::Tensor& parameter, const torch::Tensor& values, uint64_t seed);

}  // namespace vlmtune::kernels
