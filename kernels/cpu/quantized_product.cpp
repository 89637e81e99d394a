#include "kernels/cpu/quantized_product.h"

#include <algorithm>

#include "kernels/cpu/brgemm.h"
#include "kernels/cpu/quantize.h"

namespace vlmtune::kernels::cpu {
namespace {

using c10::BFloat16;

constexpr int64_t kDepth = 256;        // of a tile, which stays in the first caches
constexpr int64_t kRowsOfBlock = 64;   // of x that are multiplied at a time
constexpr int64_t kRowsOfSums = 1024;  // of fp32 sums that are held at a time
constexpr int64_t kFewestRows = 32;    // below, making the weight is most of the work

struct Scratch {
  BFloat16 *rows, *tile;
  float* sums;
  explicit Scratch(std::byte* memory)
      : rows(reinterpret_cast<BFloat16*>(memory)),
        tile(rows + kDepth * kProductColumns),
        sums(reinterpret_cast<float*>(tile + kDepth * kProductColumns)) {}
};

void dequantize_row(const QuantizedMatrix& weight, int64_t first, int64_t count, BFloat16* y) {
  if (weight.type == QuantType::kInt8)
    dequantize_int8(static_cast<const int8_t*>(weight.codes), weight.scales, weight.block, first, count, y);
  else
    dequantize_4bit(static_cast<const uint8_t*>(weight.codes), weight.scales, weight.block,
                    weight.type == QuantType::kNf4 ? nf4_values() : int4_values(), first, count, y);
}

VLMTUNE_CLONES void to_operand(const BFloat16* rows, int64_t depth, BFloat16* tile) {
  operand_loop(rows, depth, kProductColumns, tile);
}
VLMTUNE_CLONES void to_transposed_operand(const BFloat16* rows, int64_t depth, BFloat16* tile) {
  transposed_operand_loop(rows, kProductColumns, depth, tile, kProductColumns);
}

/// The right operand [depth, kProductColumns]; columns behind the last of the `columns` are anything.
void make_tile(const QuantizedMatrix& weight, bool transposed, int64_t first_depth, int64_t depth, int64_t first_column,
               int64_t columns, const Scratch& scratch) {
  if (transposed) {
    for (int64_t i = 0; i < depth; ++i)
      dequantize_row(weight, (first_depth + i) * weight.in + first_column, columns, scratch.rows + i * kProductColumns);
    to_operand(scratch.rows, depth, scratch.tile);
  } else {
    for (int64_t i = 0; i < columns; ++i)
      dequantize_row(weight, (first_column + i) * weight.in + first_depth, depth, scratch.rows + i * depth);
    to_transposed_operand(scratch.rows, depth, scratch.tile);
  }
}

VLMTUNE_CLONES void store_sums(const float* sums, int64_t rows, int64_t columns, const BFloat16* bias, BFloat16* y,
                               int64_t stride) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < columns; ++i)
      store(y + row * stride + i, sums[row * kProductColumns + i] + (bias == nullptr ? 0.0f : load(bias[i])));
}

}  // namespace

bool multiplies_quantized(int64_t rows, int64_t depth) {
  return multiplies_bf16() && rows >= kFewestRows && depth % 2 == 0;
}

int64_t quantized_product_scratch(int64_t rows) {
  const int64_t tiles = 2 * kDepth * kProductColumns * static_cast<int64_t>(sizeof(BFloat16));
  return tiles + std::min(rows, kRowsOfSums) * kProductColumns * static_cast<int64_t>(sizeof(float));
}

void quantized_product(const BFloat16* x, int64_t rows, const QuantizedMatrix& weight, bool transposed,
                       const BFloat16* bias, int64_t first, BFloat16* y, std::byte* memory) {
  const Scratch scratch(memory);
  const int64_t depth = transposed ? weight.out : weight.in, width = transposed ? weight.in : weight.out;
  const int64_t columns = std::min(kProductColumns, width - first);
  std::fill_n(scratch.rows, kDepth * kProductColumns, BFloat16(0.0f));
  for (int64_t begin = 0; begin < rows; begin += kRowsOfSums) {
    const int64_t end = std::min(rows, begin + kRowsOfSums);
    for (int64_t at = 0; at < depth; at += kDepth) {
      const int64_t count = std::min(kDepth, depth - at);
      make_tile(weight, transposed, at, count, first, columns, scratch);
      for (int64_t row = begin; row < end; row += kRowsOfBlock)
        product(std::min(kRowsOfBlock, end - row), kProductColumns, count, x + row * depth + at, depth, scratch.tile,
                kProductColumns, scratch.sums + (row - begin) * kProductColumns, kProductColumns, at > 0);
    }
    store_sums(scratch.sums, end - begin, columns, bias == nullptr ? nullptr : bias + first, y + begin * width + first,
               width);
  }
}

}  // namespace vlmtune::kernels::cpu
