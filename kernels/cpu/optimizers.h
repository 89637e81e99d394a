// Loops of the optimizer steps.
#pragma once
#include <c10/util/BFloat16.h>

#include <cstdint>

#include "kernels/elements.h"

namespace vlmtune::kernels::cpu {

constexpr int64_t kStateBlock = 256;  // neighbours that share a scale

void lion(float* parameter, const float* gradient, float* momentum, int64_t count, const UpdateRule& rule);

/// A block of at most kStateBlock elements. `correction1` and `correction2` are 1 - beta^step; `tables`: the values of the codes.
struct Block8bit {
  uint8_t *average_codes, *square_codes;
  float *average_scale, *square_scale;
};
void adamw_8bit_block(float* parameter, const float* gradient, const Block8bit& state, int64_t count,
                      const UpdateRule& rule, float correction1, float correction2, const float* average_table,
                      const float* square_table);

/// Element i of the range has place `first` + i among the random numbers of `seed`.
void round_stochastically(const float* values, c10::BFloat16* rounded, int64_t count, uint64_t seed, uint64_t first);

}  // namespace vlmtune::kernels::cpu
