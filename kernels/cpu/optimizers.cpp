#include "kernels/cpu/optimizers.h"

#include <algorithm>

namespace vlmtune::kernels::cpu {

VLMTUNE_CLONES void lion(float* parameter, const float* gradient, float* momentum, int64_t count,
                         const UpdateRule& rule) {
  for (int64_t i = 0; i < count; ++i) {
    parameter[i] = lion_parameter(parameter[i], gradient[i], momentum[i], rule);
    momentum[i] = lion_momentum(gradient[i], momentum[i], rule);
  }
}

namespace {

VLMTUNE_INLINE void find_values(const uint8_t* __restrict codes, int64_t count, const float* __restrict values,
                                float scale, float* __restrict y) {
  for (int64_t i = 0; i < count; ++i) y[i] = values[codes[i]] * scale;
}

VLMTUNE_INLINE void adamw_block(float* __restrict parameter, const float* __restrict gradient,
                                float* __restrict average, float* __restrict square, int64_t count,
                                const UpdateRule& rule, float step, float root) {
  for (int64_t i = 0; i < count; ++i) {
    average[i] = adamw_average(average[i], gradient[i], rule);
    square[i] = adamw_square(square[i], gradient[i], rule);
    parameter[i] = adamw_parameter(parameter[i], average[i], square[i], step, root, rule);
  }
}

}  // namespace

VLMTUNE_CLONES void adamw_8bit(float* parameter, const float* gradient, const Moments8bit& moments, int64_t count,
                               const UpdateRule& rule, float step, float root, const DynamicCodes& averages,
                               const DynamicCodes& squares, int64_t begin, int64_t end) {
  float average[kStateBlock], square[kStateBlock];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kStateBlock, size = std::min(kStateBlock, count - first);
    find_values(moments.average_codes + first, size, averages.values, moments.average_scales[block], average);
    find_values(moments.square_codes + first, size, squares.values, moments.square_scales[block], square);
    adamw_block(parameter + first, gradient + first, average, square, size, rule, step, root);
    find_codes(average, size, averages.cells, moments.average_codes + first, moments.average_scales + block);
    find_codes(square, size, squares.cells, moments.square_codes + first, moments.square_scales + block);
  }
}

VLMTUNE_CLONES void round_stochastically(const float* values, c10::BFloat16* rounded, int64_t count, uint64_t seed,
                                         uint64_t first) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, 4);
    rounded[i].x = stochastic_bf16(bits, random_bits(seed, first + static_cast<uint64_t>(i)));
  }
}

}  // namespace vlmtune::kernels::cpu
