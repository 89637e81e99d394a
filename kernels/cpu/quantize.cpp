#include "kernels/cpu/quantize.h"

#include <algorithm>

#include "kernels/cpu/bf16_vectors.h"
#include "kernels/cpu/dynamic_codes.h"
#include "kernels/quantized.h"

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

/// Calls f(first code, number of codes, scale) for each stretch of codes [first, first + count) that shares a scale.
template <typename F>
VLMTUNE_INLINE void each_stretch(const float* scales, int64_t block, int64_t first, int64_t count, F f) {
  for (int64_t at = first; at < first + count;) {
    const int64_t end = std::min(first + count, (at / block + 1) * block);
    f(at, end - at, scales[at / block]);
    at = end;
  }
}

/// y = the values in `scaled` of the codes from byte `codes` on, the first one in its low half if `odd`.
template <typename T>
VLMTUNE_INLINE void look_up(const uint8_t* codes, bool odd, int64_t count, const T* scaled, T* y) {
  int64_t i = 0;
  if (odd && count > 0) y[i++] = scaled[*codes++ & 15];
  for (; i + 1 < count; i += 2, ++codes) {
    y[i] = scaled[*codes >> 4];
    y[i + 1] = scaled[*codes & 15];
  }
  if (i < count) y[i] = scaled[*codes >> 4];
}

template <typename T, typename F>
VLMTUNE_INLINE void dequantize_4bit_loop(const uint8_t* codes, const float* scales, int64_t block, const float* values,
                                         int64_t first, int64_t count, T* y, F look_up_even) {
  each_stretch(
      scales, block, first, count, [&](int64_t at, int64_t n, float scale) __attribute__((always_inline)) {
        alignas(64) T scaled[16];
        for (int64_t i = 0; i < 16; ++i) store(scaled + i, values[i] * scale);
        if (at % 2 == 0)
          look_up_even(codes + at / 2, n, scaled, y + at - first);
        else
          look_up(codes + at / 2, true, n, scaled, y + at - first);
      });
}

#ifdef VLMTUNE_BF16_VECTORS
#define VLMTUNE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq")))
// The table is held in a register, in which an instruction looks up: two halves of a byte are two indices side by side, of
// which it takes as many low bits as the table needs.

template <typename T>
VLMTUNE_AVX512 VLMTUNE_INLINE void look_up_avx512(const uint8_t* codes, int64_t count, const T* scaled, T* y) {
  static_assert(sizeof(T) == 2);
  const __m512i table = _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(scaled)));
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const __m512i indices = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
    _mm512_storeu_si512(y + i, _mm512_permutexvar_epi16(indices, table));
  }
  look_up(codes + i / 2, false, count - i, scaled, y + i);
}
template <>
VLMTUNE_AVX512 VLMTUNE_INLINE void look_up_avx512(const uint8_t* codes, int64_t count, const float* scaled, float* y) {
  const __m512 table = _mm512_load_ps(scaled);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const __m512i indices = _mm512_or_si512(_mm512_srli_epi64(bytes, 4), _mm512_slli_epi64(bytes, 32));
    _mm512_storeu_ps(y + i, _mm512_permutexvar_ps(indices, table));
  }
  look_up(codes + i / 2, false, count - i, scaled, y + i);
}

template <typename T>
VLMTUNE_AVX512 void dequantize_4bit_avx512(const uint8_t* codes, const float* scales, int64_t block,
                                           const float* values, int64_t first, int64_t count, T* y) {
  dequantize_4bit_loop(codes, scales, block, values, first, count, y, look_up_avx512<T>);
}

/// The same in bf16 with the table made in registers, 64 codes at a time; `first` and `count` are multiples of 64, which `block` is.
VLMTUNE_BF16_VECTORS void dequantize_4bit_bf16(const uint8_t* codes, const float* scales, int64_t block,
                                               const float* values, int64_t first, int64_t count, c10::BFloat16* y) {
  const __m512 unscaled = _mm512_load_ps(values);
  for (int64_t at = first; at < first + count; at += kQuantBlock, y += kQuantBlock) {
    const __m512i table = _mm512_broadcast_i64x4(narrow(_mm512_mul_ps(unscaled, _mm512_set1_ps(scales[at / block]))));
    for (int64_t i = 0; i < kQuantBlock; i += 32) {
      const __m512i bytes =
          _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + (at + i) / 2)));
      const __m512i indices = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
      _mm512_storeu_si512(y + i, _mm512_permutexvar_epi16(indices, table));
    }
  }
}
#endif

template <typename T>
VLMTUNE_INLINE void dequantize_int8_loop(const int8_t* codes, const float* scales, int64_t block, int64_t first,
                                         int64_t count, T* y) {
  each_stretch(scales, block, first, count, [&](int64_t at, int64_t n, float scale) {
    for (int64_t i = 0; i < n; ++i) store(y + at - first + i, static_cast<float>(codes[at + i]) * scale * (1.0f / 127));
  });
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
  VLMTUNE_CLONES void dequantize_int8<T>(const int8_t* codes, const float* scales, int64_t block, int64_t first, \
                                         int64_t count, T* y) {                                                  \
    dequantize_int8_loop(codes, scales, block, first, count, y);                                                 \
  }
VLMTUNE_INSTANTIATE(float)
VLMTUNE_INSTANTIATE(c10::BFloat16)
VLMTUNE_INSTANTIATE(c10::Half)

template <typename T>
void dequantize_4bit(const uint8_t* codes, const float* scales, int64_t block, const float* values, int64_t first,
                     int64_t count, T* y) {
#ifdef VLMTUNE_BF16_VECTORS
  if constexpr (std::is_same_v<T, c10::BFloat16>)
    if (has_bf16_vectors() && first % kQuantBlock == 0 && count % kQuantBlock == 0 && block % kQuantBlock == 0)
      return dequantize_4bit_bf16(codes, scales, block, values, first, count, y);
  static const bool has_avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  if (has_avx512) return dequantize_4bit_avx512(codes, scales, block, values, first, count, y);
#endif
  const auto look_up_even = [](const uint8_t* bytes, int64_t n, const T* scaled, T* to) {
    look_up(bytes, false, n, scaled, to);
  };
  dequantize_4bit_loop(codes, scales, block, values, first, count, y, look_up_even);
}
template void dequantize_4bit(const uint8_t*, const float*, int64_t, const float*, int64_t, int64_t, float*);
template void dequantize_4bit(const uint8_t*, const float*, int64_t, const float*, int64_t, int64_t, c10::BFloat16*);
template void dequantize_4bit(const uint8_t*, const float*, int64_t, const float*, int64_t, int64_t, c10::Half*);

static_assert(kScaleBlock <= kDynamicBlock);
VLMTUNE_CLONES void quantize_dynamic(const float* x, int64_t count, int64_t block, const int32_t* cells, uint8_t* codes,
                                     float* scales, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b)
    find_codes(x + b * block, std::min(block, count - b * block), cells, codes + b * block, scales + b);
}

}  // namespace vlmtune::kernels::cpu
