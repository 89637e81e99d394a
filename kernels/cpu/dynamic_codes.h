// Codes of "dynamic" 8-bit numbers, which lie in [-1, 1], found in steps that vectorise.
#pragma once
#include <algorithm>

#include "kernels/cpu/arithmetic.h"

namespace vlmtune::kernels::cpu {

// Numbers of one sign, exponent and first 7 bits of mantissa make a cell. No more than two codes share one, so that an int32
// holds all that there is to know: the code of the cell's smallest magnitudes, and above it, the last 16 bits up to which it is so.
constexpr int32_t kCellBits = 16;
constexpr int32_t kFirstCell = 103 << 23, kLastCell = 127 << 23;  // 2^-24, below which all are nearest to 0, and 1
constexpr int32_t kNumCells = ((kLastCell - kFirstCell) >> kCellBits) + 1;  // of either sign

struct DynamicCodes {
  const float* values;   // [256], ascending
  const int32_t* cells;  // [2 * kNumCells], the second half for negative numbers
};

/// What nearest_of_256 gives, of a number.
VLMTUNE_INLINE int32_t nearest_code(const int32_t* cells, float value) {
  int32_t bits;
  std::memcpy(&bits, &value, 4);
  const int32_t sign = bits >> 31;  // 0 or -1
  const int32_t magnitude = std::min(std::max(bits & 0x7FFFFFFF, kFirstCell), kLastCell);
  const int32_t cell = cells[((magnitude - kFirstCell) >> kCellBits) + (sign & kNumCells)];
  const int32_t beyond = (magnitude & ((1 << kCellBits) - 1)) > (cell >> 8);
  return (cell & 255) + ((beyond ^ sign) - sign);
}

constexpr int64_t kDynamicBlock = 256;  // neighbours that share a scale, at most

/// codes of x [count] over its largest magnitude, which becomes the scale.
VLMTUNE_INLINE void find_codes(const float* x, int64_t count, const int32_t* cells, uint8_t* codes, float* scale) {
  int32_t largest_bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7FFFFFFF;
    largest_bits = std::max(largest_bits, bits <= 0x7F800000 ? bits : 0);  // but for NaN
  }
  float largest;
  std::memcpy(&largest, &largest_bits, 4);
  *scale = largest;
  const float inverse = largest > 0 ? 1 / largest : 0;
  int32_t found[kDynamicBlock];  // which is nowhere else: only then do the loads from cells vectorise
  for (int64_t i = 0; i < count; ++i) found[i] = nearest_code(cells, x[i] * inverse);
  for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(found[i]);
}

}  // namespace vlmtune::kernels::cpu
