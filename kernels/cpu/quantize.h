// Loops of block-wise quantised weights: neighbours of the flattened weight share a scale.
#pragma once
#include <cstdint>

namespace vlmtune::kernels::cpu {

/// A code's value, before its block's scale: 16 for codes of 4 bits.
const float* nf4_values();
const float* int4_values();

/// codes and largest magnitudes of blocks [begin, end) of kQuantBlock elements of x [count]. 4 bits: two codes a byte, the first in the high half.
template <typename T>
void quantize_nf4(const T* x, int64_t count, uint8_t* codes, float* scales, int64_t begin, int64_t end);
template <typename T>
void quantize_int4(const T* x, int64_t count, uint8_t* codes, float* scales, int64_t begin, int64_t end);
template <typename T>
void quantize_int8(const T* x, int64_t count, int8_t* codes, float* scales, int64_t begin, int64_t end);

/// y = the values of codes [first, first + count), each times the scale of its block of `block`; `values`: of 4 bits.
template <typename T>
void dequantize_4bit(const uint8_t* codes, const float* scales, int64_t block, const float* values, int64_t first,
                     int64_t count, T* y);
template <typename T>
void dequantize_int8(const int8_t* codes, const float* scales, int64_t block, int64_t first, int64_t count, T* y);

/// Dynamic codes (dynamic_codes.h), with the largest magnitude of each of `block` neighbours, at most kDynamicBlock: blocks [begin, end).
void quantize_dynamic(const float* x, int64_t count, int64_t block, const int32_t* cells, uint8_t* codes, float* scales,
                      int64_t begin, int64_t end);

}  // namespace vlmtune::kernels::cpu
