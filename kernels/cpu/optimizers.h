// Loops of the optimizer steps.
#pragma once
#include <c10/util/BFloat16.h>

#include <cstdint>

#include "kernels/cpu/dynamic_codes.h"

namespace vlmtune::kernels::cpu {

constexpr int64_t kStateBlock = kDynamicBlock;  // neighbours that share a scale

void lion(float* parameter, const float* gradient, float* momentum, int64_t count, const UpdateRule& rule);

struct Moments8bit {
  uint8_t *average_codes, *square_codes;
  float *average_scales, *square_scales;  // a block's
};
/// Blocks [begin, end) of the `count` elements. `step` and `root` as in adamw_parameter; the codes that moments are kept in.
void adamw_8bit(float* parameter, const float* gradient, const Moments8bit& moments, int64_t count,
                const UpdateRule& rule, float step, float root, const DynamicCodes& averages,
                const DynamicCodes& squares, int64_t begin, int64_t end);

/// Element i of the range has place `first` + i among the random numbers of `seed`.
void round_stochastically(const float* values, c10::BFloat16* rounded, int64_t count, uint64_t seed, uint64_t first);

}  // namespace vlmtune::kernels::cpu
