// The CUDA kernels of this plugin as plain functions on device pointers; `plugin.cpp` registers them with LibTorch. T is
// given by `type`: 0 fp32, 1 bf16, 2 fp16. All run on `stream` and do not wait.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/elements.h"

namespace vlmtune::kernels::cuda {

enum class Type { kFloat, kBFloat16, kHalf };

/// See kernels/rms_norm.h. One block a row; x, y [rows, D], weight [D], rstd [rows] fp32.
void rms_norm_forward(Type type, const void* x, const void* weight, void* y, float* rstd, int64_t rows, int64_t size,
                      float eps, cudaStream_t stream);
void rms_norm_backward(Type type, const void* dy, const void* x, const void* weight, const float* rstd, void* dx,
                       int64_t rows, int64_t size, cudaStream_t stream);

/// See kernels/swiglu.h.
void swiglu_forward(Type type, const void* gate, const void* up, void* y, int64_t count, cudaStream_t stream);
void swiglu_backward(Type type, const void* dy, const void* gate, const void* up, void* dgate, void* dup, int64_t count,
                     cudaStream_t stream);

/// See kernels/cross_entropy.h: logits [rows, size] become their gradient, losses [rows].
void cross_entropy(Type type, void* logits, const int64_t* targets, float* losses, int64_t rows, int64_t size,
                   bool needs_gradient, cudaStream_t stream);

/// See kernels/rope.h. x and y have the same strides (of batch row, head, token; channels adjacent), tables [1 or B, T, d].
struct RopeShape {
  int64_t batch, heads, tokens, size;
  int64_t stride[3];
  bool shared_table;  ///< one table for all batch rows
};
void rope(Type type, const void* x, const void* cos, const void* sin, void* y, const RopeShape& shape, float sign,
          cudaStream_t stream);

/// See kernels/quantized.h. All pointers are the device's.
struct QuantizedCodes {
  const void* codes;           ///< 4 bits: two a byte, the first in the high half; 8 bits: int8
  const float* values;         ///< of 4-bit codes; null: 8 bits
  const void* scales;          ///< fp32, or codes of them where there are nested ones
  const float* nested_scales;  ///< null: none
  const float* offset;
  const float* scale_values;  ///< of the codes of scales
  int64_t block;
};
/// y [rows, columns]: the part of the weight whose rows have `row_size` elements.
void dequantize(Type type, const QuantizedCodes& weight, int64_t row_size, int64_t first_row, int64_t rows,
                int64_t first_column, int64_t columns, void* y, cudaStream_t stream);

/// See kernels/optimizer_steps.h.
void lion(float* parameter, const float* gradient, float* momentum, int64_t count, const UpdateRule& rule,
          cudaStream_t stream);
struct Moments8bit {
  uint8_t *average_codes, *square_codes;
  float *average_scales, *square_scales;
  const float *average_table, *square_table;  ///< the values of the codes [256]
};
void adamw_8bit(float* parameter, const float* gradient, const Moments8bit& moments, int64_t count,
                const UpdateRule& rule, float step, float root, cudaStream_t stream);
void round_stochastically(const float* values, void* rounded, int64_t count, uint64_t seed, cudaStream_t stream);

}  // namespace vlmtune::kernels::cuda
