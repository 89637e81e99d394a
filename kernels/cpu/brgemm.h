// Products of small blocks by oneDNN's brgemm, which LibTorch exports, and the layouts that it takes.
#pragma once
#include <ATen/native/CPUBlas.h>

#include "kernels/cpu/arithmetic.h"

namespace vlmtune::kernels::cpu {

/// Whether the processor multiplies bf16 itself; where it does not, fp32 products are faster.
inline bool multiplies_bf16() {
#if defined(__x86_64__)
  static const bool yes = __builtin_cpu_supports("avx512bf16");
  return yes;
#else
  return false;
#endif
}

// The right operand b [k, n] of a product lies in rows of fp32, or in pairs of bf16 rows whose elements alternate
// ([k/2][n][2]), as bf16 instructions take them.

inline void product(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                    int64_t ldc, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, a, b, c, /*is_vnni=*/false);
}
inline void product(int64_t m, int64_t n, int64_t k, const c10::BFloat16* a, int64_t lda, const c10::BFloat16* b,
                    int64_t ldb, float* c, int64_t ldc, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, a, b, c, /*is_vnni=*/true);
}

VLMTUNE_INLINE uint32_t pair(c10::BFloat16 low, c10::BFloat16 high) {
  return static_cast<uint32_t>(low.x) | static_cast<uint32_t>(high.x) << 16;
}

/// y [size, ldy] = x [rows, size] transposed.
template <typename C>
VLMTUNE_INLINE void transpose_loop(const C* x, int64_t rows, int64_t size, C* y, int64_t ldy) {
  for (int64_t i = 0; i < size; ++i)
    for (int64_t row = 0; row < rows; ++row) y[i * ldy + row] = x[row * size + i];
}

/// The right operand [size, rows] with rows of `ldy` from x [rows, size], of which it is the transpose.
VLMTUNE_INLINE void transposed_operand_loop(const float* x, int64_t rows, int64_t size, float* y, int64_t ldy) {
  transpose_loop(x, rows, size, y, ldy);
}
VLMTUNE_INLINE void transposed_operand_loop(const c10::BFloat16* x, int64_t rows, int64_t size, c10::BFloat16* y,
                                            int64_t ldy) {
  // Pairs of channels are adjacent in x already.
  transpose_loop(reinterpret_cast<const uint32_t*>(x), rows, size / 2, reinterpret_cast<uint32_t*>(y), ldy);
}

/// The right operand [rows, size] from x [rows, size].
VLMTUNE_INLINE void operand_loop(const float* x, int64_t rows, int64_t size, float* y) {
  std::memcpy(y, x, static_cast<size_t>(rows * size) * sizeof(float));
}
VLMTUNE_INLINE void operand_loop(const c10::BFloat16* x, int64_t rows, int64_t size, c10::BFloat16* y) {
  auto* pairs = reinterpret_cast<uint32_t*>(y);
  for (int64_t row = 0; row < rows; row += 2)
    for (int64_t i = 0; i < size; ++i) pairs[row / 2 * size + i] = pair(x[row * size + i], x[(row + 1) * size + i]);
}

}  // namespace vlmtune::kernels::cpu
