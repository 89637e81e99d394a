// Sixteen bf16 numbers at a time, for processors that round fp32 to them in one instruction: the compiler's own loops spend most
// of their time on rounding. Rounding is to nearest, ties to even, as everywhere; magnitudes below 2^-126 become 0.
#pragma once
#include "kernels/cpu/arithmetic.h"

#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12's own header (bug 105593)
#include <immintrin.h>
#define VLMTUNE_BF16_VECTORS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace vlmtune::kernels::cpu {

inline bool has_bf16_vectors() {
  static const bool yes = __builtin_cpu_supports("avx512bf16");
  return yes;
}

constexpr int64_t kBf16Lanes = 16;

VLMTUNE_BF16_VECTORS VLMTUNE_INLINE __m256i narrow(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
VLMTUNE_BF16_VECTORS VLMTUNE_INLINE __m512 widen(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
VLMTUNE_BF16_VECTORS VLMTUNE_INLINE __m512 load16(const c10::BFloat16* x) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}
VLMTUNE_BF16_VECTORS VLMTUNE_INLINE void store16(c10::BFloat16* y, __m512 value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), narrow(value));
}
VLMTUNE_BF16_VECTORS VLMTUNE_INLINE __m512 rounded16(__m512 x) { return widen(narrow(x)); }

/// As sigmoid(float).
VLMTUNE_BF16_VECTORS VLMTUNE_INLINE __m512 sigmoid16(__m512 x) {
  const __m512 one = _mm512_set1_ps(1);
  const __m512 y =
      _mm512_min_ps(_mm512_max_ps(_mm512_sub_ps(_mm512_setzero_ps(), x), _mm512_set1_ps(-87)), _mm512_set1_ps(88));
  const __m512 n =
      _mm512_roundscale_ps(_mm512_mul_ps(y, _mm512_set1_ps(kLog2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), y));
  __m512 p = _mm512_set1_ps(kExponential[0]);
  for (int i = 1; i < 6; ++i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExponential[i]));
  p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r), one);
  return _mm512_div_ps(one, _mm512_add_ps(one, _mm512_scalef_ps(p, n)));
}

}  // namespace vlmtune::kernels::cpu
#endif
