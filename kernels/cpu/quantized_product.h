// Products of bf16 rows with a weight in few bits, of which only a tile a thread exists in bf16.
#pragma once
#include <cstddef>
#include <cstdint>

#include <c10/util/BFloat16.h>

#include "kernels/quantized.h"

namespace vlmtune::kernels::cpu {

/// A weight [out, in], its scales in fp32.
struct QuantizedMatrix {
  QuantType type;
  int64_t out, in, block;
  const void* codes;
  const float* scales;
};

/// Whether `quantized_product` takes operands of these sizes on this processor: `depth` is what is summed over.
bool multiplies_quantized(int64_t rows, int64_t depth);

/// Columns of the result that one call computes, and the bytes of work space it needs.
constexpr int64_t kProductColumns = 64;
int64_t quantized_product_scratch(int64_t rows);

/// Columns [first, first + kProductColumns) of y: x weightᵀ + bias for x [rows, in] and y [rows, out], or `transposed`
/// x weight for x [rows, out] and y [rows, in]. `bias` may be null.
void quantized_product(const c10::BFloat16* x, int64_t rows, const QuantizedMatrix& weight, bool transposed,
                       const c10::BFloat16* bias, int64_t first, c10::BFloat16* y, std::byte* scratch);

}  // namespace vlmtune::kernels::cpu
