#include "kernels/cpu/optimizers.h"

#include "kernels/cpu/arithmetic.h"
#include "kernels/cpu/quantize.h"

namespace vlmtune::kernels::cpu {

VLMTUNE_CLONES void lion(float* parameter, const float* gradient, float* momentum, int64_t count,
                         const UpdateRule& rule) {
  for (int64_t i = 0; i < count; ++i) {
    parameter[i] = lion_parameter(parameter[i], gradient[i], momentum[i], rule);
    momentum[i] = lion_momentum(gradient[i], momentum[i], rule);
  }
}

VLMTUNE_CLONES void adamw_8bit_block(float* parameter, const float* gradient, const Block8bit& state, int64_t count,
                                     const UpdateRule& rule, float correction1, float correction2,
                                     const float* average_table, const float* square_table) {
  const float average_scale = *state.average_scale, square_scale = *state.square_scale;
  const float step = rule.rate / correction1, root = std::sqrt(correction2);
  float average[kStateBlock], square[kStateBlock];
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i];
    average[i] = adamw_average(average_table[state.average_codes[i]] * average_scale, g, rule);
    square[i] = adamw_square(square_table[state.square_codes[i]] * square_scale, g, rule);
    parameter[i] = adamw_parameter(parameter[i], average[i], square[i], step, root, rule);
  }
  quantize_8bit_table(average, count, count, average_table, state.average_codes, state.average_scale, 0, 1);
  quantize_8bit_table(square, count, count, square_table, state.square_codes, state.square_scale, 0, 1);
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
