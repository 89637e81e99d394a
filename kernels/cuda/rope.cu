#include "kernels/cuda/check.h"
#include "kernels/cuda/convert.cuh"

namespace vlmtune::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread a channel of a row; rows are tokens of a head of a batch row.
template <typename T>
__global__ void rope_kernel(const T* x, const T* cos, const T* sin, T* y, RopeShape s, float sign) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.batch * s.heads * s.tokens * s.size) return;
  const int64_t c = i % s.size, t = i / s.size % s.tokens, h = i / s.size / s.tokens % s.heads,
                b = i / s.size / s.tokens / s.heads;
  const int64_t row = b * s.stride[0] + h * s.stride[1] + t * s.stride[2];
  const int64_t table = (s.shared_table ? 0 : b * s.tokens * s.size) + t * s.size + c;
  const int64_t half = s.size / 2, other = c < half ? c + half : c - half;
  store(y + row + c, rounded<T>(load(x[row + c]) * load(cos[table])) +
                         (c < half ? -sign : sign) * rounded<T>(load(x[row + other]) * load(sin[table])));
}

}  // namespace

void rope(Type type, const void* x, const void* cos, const void* sin, void* y, const RopeShape& shape, float sign,
          cudaStream_t stream) {
  const int64_t count = shape.batch * shape.heads * shape.tokens * shape.size;
  if (count == 0) return;
  dispatch(type, [&](auto t) {
    using T = decltype(t);
    rope_kernel<<<num_blocks(count, kThreads), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<const T*>(cos), static_cast<const T*>(sin), static_cast<T*>(y), shape,
        sign);
  });
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace vlmtune::kernels::cuda
