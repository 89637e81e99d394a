#include "kernels/cuda/check.h"
#include "kernels/cuda/convert.cuh"

namespace vlmtune::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kScaleBlock = 256;

__device__ float scale_of(const QuantizedCodes& w, int64_t block) {
  if (w.nested_scales == nullptr) return static_cast<const float*>(w.scales)[block];
  const auto code = static_cast<const uint8_t*>(w.scales)[block];
  return w.scale_values[code] * w.nested_scales[block / kScaleBlock] + *w.offset;
}

/// One thread an element of the part, neighbours along its rows.
template <typename T>
__global__ void dequantize_kernel(QuantizedCodes w, int64_t row_size, int64_t first_row, int64_t first_column,
                                  int64_t columns, int64_t count, T* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t at = (first_row + i / columns) * row_size + first_column + i % columns;
  const float scale = scale_of(w, at / w.block);
  if (w.values == nullptr) {
    store(y + i, static_cast<float>(static_cast<const int8_t*>(w.codes)[at]) * scale * (1.0f / 127));
  } else {
    const auto pair = static_cast<const uint8_t*>(w.codes)[at / 2];
    store(y + i, w.values[at % 2 == 0 ? pair >> 4 : pair & 15] * scale);
  }
}

}  // namespace

void dequantize(Type type, const QuantizedCodes& weight, int64_t row_size, int64_t first_row, int64_t rows,
                int64_t first_column, int64_t columns, void* y, cudaStream_t stream) {
  const int64_t count = rows * columns;
  if (count == 0) return;
  dispatch(type, [&](auto t) {
    using T = decltype(t);
    dequantize_kernel<<<num_blocks(count, kThreads), kThreads, 0, stream>>>(weight, row_size, first_row, first_column,
                                                                            columns, count, static_cast<T*>(y));
  });
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace vlmtune::kernels::cuda
