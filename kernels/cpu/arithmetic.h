// Arithmetic that the CPU loops share: 16-bit numbers as fp32, and functions that vectorise.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/elements.h"

// A function compiled for several instruction sets, the best one of the machine being called. Sanitizers cannot
// follow the dispatch, which runs before they are set up.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define VLMTUNE_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define VLMTUNE_CLONES
#endif
#define VLMTUNE_INLINE inline __attribute__((always_inline))

namespace vlmtune::kernels::cpu {

VLMTUNE_INLINE float load(float x) { return x; }
VLMTUNE_INLINE float load(c10::BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.x) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
VLMTUNE_INLINE float load(c10::Half x) { return static_cast<float>(x); }

VLMTUNE_INLINE void store(float* y, float value) { *y = value; }
VLMTUNE_INLINE void store(c10::BFloat16* y, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
  y->x = static_cast<uint16_t>(value == value ? rounded : 0x7FC0u);
}
VLMTUNE_INLINE void store(c10::Half* y, float value) { *y = c10::Half(value); }

template <typename T>
VLMTUNE_INLINE float rounded(float value) {
  T stored;
  store(&stored, value);
  return load(stored);
}

constexpr float kLog2E = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
constexpr float kExponential[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                   4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

/// e^x with a relative error of about 2e-7: 2^n times a polynomial (Cephes' expf), in operations that vectorise.
VLMTUNE_INLINE float exponential(float x) {
  x = x > 88.0f ? 88.0f : x < -87.0f ? -87.0f : x;
  const float n = std::floor(x * kLog2E + 0.5f);
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = kExponential[0];
  for (int i = 1; i < 6; ++i) p = p * r + kExponential[i];
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return p * power;
}

constexpr int kLanes = 16;  // partial sums: fixed, so that every instruction set adds in the same order

VLMTUNE_INLINE float sum_lanes(const float* lanes) {
  float sum = 0;
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

/// Sum of f(i) for i in [0, size).
template <typename F>
VLMTUNE_INLINE float sum_over(int64_t size, F f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
  float sum = sum_lanes(lanes);
  for (; i < size; ++i) sum += f(i);
  return sum;
}

VLMTUNE_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

}  // namespace vlmtune::kernels::cpu
