#include "kernels/cpu/quantize.h"

#include <algorithm>

#include "kernels/cpu/arithmetic.h"

namespace vlmtune::kernels::cpu {
namespace {

// NormalFloat (Dettmers et al. 2023, arXiv 2305.14314, appendix E): quantiles of a normal distribution, scaled to [-1, 1].
alignas(64) constexpr float kNf4[16] = {-1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f,
                                        0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f};

// Where one code ends and the next begins, as bitsandbytes has them.
constexpr float kNf4Bounds[15] = {
    -0.8480964004993439f,  -0.6106329262256622f,   -0.4599952697753906f, -0.33967943489551544f, -0.23460740596055984f,
    -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f, 0.1202552504837513f,   0.2035212516784668f,
    0.2920137718319893f,   0.3893125355243683f,    0.5016634166240692f,  0.6427869200706482f,   0.8614784181118011f};

// Symmetric: code 8 is 0, codes 1 and 15 are the largest magnitude.
alignas(64) constexpr float kInt4[16] = {-8.0f / 7, -1.0f,     -6.0f / 7, -5.0f / 7, -4.0f / 7, -3.0f / 7,
                                         -2.0f / 7, -1.0f / 7, 0.0f,      1.0f / 7,  2.0f / 7,  3.0f / 7,
                                         4.0f / 7,  5.0f / 7,  6.0f / 7,  1.0f};

VLMTUNE_INLINE int nf4_code(float x) {
  int code = 0;
  for (const float bound : kNf4Bounds) code += x > bound;
  return code;
}

/// Calls f(value times the block's inverse scale, index within the block) for the elements of a block, with scale set.
template <typename T, typename F>
VLMTUNE_INLINE void each_of_block(const T* x, int64_t count, int64_t block, float* scale, F f) {
  const int64_t begin = block * kQuantBlock, n = std::min(kQuantBlock, count - begin);
  float values[kQuantBlock] = {};
  for (int64_t i = 0; i < n; ++i) values[i] = load(x[begin + i]);
  float largest = 0;
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    const float magnitude = std::fabs(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  *scale = largest;
  const float inverse = 1.0f / std::max(largest, 1e-38f);
  for (int64_t i = 0; i < kQuantBlock; ++i) f(values[i] * inverse, i);
}

template <typename T, typename F>
VLMTUNE_INLINE void quantize_4bit_loop(const T* x, int64_t count, uint8_t* codes, float* scales, int64_t begin,
                                       int64_t end, F code_of) {
  for (int64_t block = begin; block < end; ++block) {
    uint8_t code[kQuantBlock];
    each_of_block(x, count, block, scales + block,
                  [&](float value, int64_t i) { code[i] = static_cast<uint8_t>(code_of(value)); });
    const int64_t bytes = (std::min(kQuantBlock, count - block * kQuantBlock) + 1) / 2;
    for (int64_t i = 0; i < bytes; ++i)
      codes[block * kQuantBlock / 2 + i] = static_cast<uint8_t>(code[2 * i] << 4 | code[2 * i + 1]);
  }
}

template <typename T>
VLMTUNE_INLINE void quantize_int8_loop(const T* x, int64_t count, int8_t* codes, float* scales, int64_t begin,
                                       int64_t end) {
  for (int64_t block = begin; block < end; ++block)
    each_of_block(x, count, block, scales + block, [&](float value, int64_t i) {
      if (block * kQuantBlock + i < count)
        codes[block * kQuantBlock + i] = static_cast<int8_t>(std::nearbyint(value * 127));
    });
}

template <typename T>
VLMTUNE_INLINE void dequantize_4bit_loop(const uint8_t* codes, const float* scales, const float* values, int64_t first,
                                         int64_t count, T* y) {
  for (int64_t i = 0; i < count;) {
    const int64_t at = first + i, block = at / kQuantBlock;
    const int64_t n = std::min(count - i, (block + 1) * kQuantBlock - at);
    const float scale = scales[block];
    if (n == kQuantBlock) {
      const uint8_t* bytes = codes + at / 2;
      for (int64_t k = 0; k < kQuantBlock / 2; ++k) {
        store(y + i + 2 * k, values[bytes[k] >> 4] * scale);
        store(y + i + 2 * k + 1, values[bytes[k] & 15] * scale);
      }
    } else {
      for (int64_t k = at; k < at + n; ++k)
        store(y + k - first, values[k % 2 == 0 ? codes[k / 2] >> 4 : codes[k / 2] & 15] * scale);
    }
    i += n;
  }
}

template <typename T>
VLMTUNE_INLINE void dequantize_int8_loop(const int8_t* codes, const float* scales, int64_t first, int64_t count, T* y) {
  for (int64_t i = 0; i < count;) {
    const int64_t at = first + i, block = at / kQuantBlock;
    const int64_t n = std::min(count - i, (block + 1) * kQuantBlock - at);
    const float scale = scales[block];
    for (int64_t k = 0; k < n; ++k) store(y + i + k, static_cast<float>(codes[at + k]) * (1.0f / 127) * scale);
    i += n;
  }
}

}  // namespace

const float* nf4_values() { return kNf4; }
const float* int4_values() { return kInt4; }

#define VLMTUNE_INSTANTIATE(T)                                                                                   \
  template <>                                                                                                    \
  VLMTUNE_CLONES void quantize_nf4<T>(const T* x, int64_t count, uint8_t* codes, float* scales, int64_t begin,   \
                                      int64_t end) {                                                             \
    quantize_4bit_loop(x, count, codes, scales, begin, end, [](float v) { return nf4_code(v); });                \
  }                                                                                                              \
  template <>                                                                                                    \
  VLMTUNE_CLONES void quantize_int4<T>(const T* x, int64_t count, uint8_t* codes, float* scales, int64_t begin,  \
                                       int64_t end) {                                                            \
    quantize_4bit_loop(x, count, codes, scales, begin, end,                                                      \
                       [](float v) { return static_cast<int>(std::nearbyint(v * 7)) + 8; });                     \
  }                                                                                                              \
  template <>                                                                                                    \
  VLMTUNE_CLONES void quantize_int8<T>(const T* x, int64_t count, int8_t* codes, float* scales, int64_t begin,   \
                                       int64_t end) {                                                            \
    quantize_int8_loop(x, count, codes, scales, begin, end);                                                     \
  }                                                                                                              \
  template <>                                                                                                    \
  VLMTUNE_CLONES void dequantize_4bit<T>(const uint8_t* codes, const float* scales, const float* values,         \
                                         int64_t first, int64_t count, T* y) {                                   \
    dequantize_4bit_loop(codes, scales, values, first, count, y);                                                \
  }                                                                                                              \
  template <>                                                                                                    \
  VLMTUNE_CLONES void dequantize_int8<T>(const int8_t* codes, const float* scales, int64_t first, int64_t count, \
                                         T* y) {                                                                 \
    dequantize_int8_loop(codes, scales, first, count, y);                                                        \
  }
VLMTUNE_INSTANTIATE(float)
VLMTUNE_INSTANTIATE(c10::BFloat16)
VLMTUNE_INSTANTIATE(c10::Half)

void quantize_8bit_table(const float* x, int64_t count, int64_t block, const float* table, uint8_t* codes,
                         float* scales, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const int64_t first = b * block, last = std::min(count, first + block);
    float largest = 0;
    for (int64_t i = first; i < last; ++i) largest = std::max(largest, std::fabs(x[i]));
    scales[b] = largest;
    const float inverse = largest > 0 ? 1 / largest : 0;
    for (int64_t i = first; i < last; ++i) {
      const float value = x[i] * inverse;
      const auto* above = std::upper_bound(table, table + 256, value);
      auto at = std::max<int64_t>(0, above - table - 1);
      if (at < 255 && std::fabs(table[at + 1] - value) < std::fabs(value - table[at])) ++at;
      codes[i] = static_cast<uint8_t>(at);
    }
  }
}

}  // namespace vlmtune::kernels::cpu
