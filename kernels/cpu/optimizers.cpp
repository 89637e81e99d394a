#include "kernels/cpu/optimizers.h"

#include "kernels/cpu/arithmetic.h"
#include "kernels/cpu/quantize.h"

namespace vlmtune::kernels::cpu {

VLMTUNE_CLONES void lion(float* parameter, const float* gradient, float* momentum, int64_t count,
                         const UpdateRule& rule) {
  const auto [rate, beta1, beta2, eps, decay] = rule;
  for (int64_t i = 0; i < count; ++i) {
    const float direction = beta1 * momentum[i] + (1 - beta1) * gradient[i];
    const float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : 0.0f;
    parameter[i] = parameter[i] * decay - rate * sign;
    momentum[i] = beta2 * momentum[i] + (1 - beta2) * gradient[i];
  }
}

VLMTUNE_CLONES void adamw_8bit_block(float* parameter, const float* gradient, const Block8bit& state, int64_t count,
                                     const UpdateRule& rule, float correction1, float correction2,
                                     const float* average_table, const float* square_table) {
  const auto [rate, beta1, beta2, eps, decay] = rule;
  const float average_scale = *state.average_scale, square_scale = *state.square_scale;
  const float step = rate / correction1, root = std::sqrt(correction2);
  float average[kStateBlock], square[kStateBlock];
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i];
    average[i] = beta1 * average_table[state.average_codes[i]] * average_scale + (1 - beta1) * g;
    square[i] = beta2 * square_table[state.square_codes[i]] * square_scale + (1 - beta2) * g * g;
    parameter[i] = parameter[i] * decay - step * average[i] / (std::sqrt(square[i]) / root + eps);
  }
  quantize_8bit_table(average, count, count, average_table, state.average_codes, state.average_scale, 0, 1);
  quantize_8bit_table(square, count, count, square_table, state.square_codes, state.square_scale, 0, 1);
}

VLMTUNE_CLONES void round_stochastically(const float* values, c10::BFloat16* rounded, int64_t count, uint64_t seed,
                                         uint64_t first) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, 4);
    const uint32_t noise = random_bits(seed, first + static_cast<uint64_t>(i)) & 0xFFFFu;
    const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
    rounded[i].x = static_cast<uint16_t>((bits + (finite ? noise : 0)) >> 16);
  }
}

}  // namespace vlmtune::kernels::cpu
