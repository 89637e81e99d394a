#include "kernels/cuda/check.h"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/reduce.cuh"

namespace vlmtune::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void forward_kernel(const T* x, const T* weight, T* y, float* rstd, int64_t size, float eps) {
  x += blockIdx.x * size;
  y += blockIdx.x * size;
  float square = 0;
  for (int64_t i = threadIdx.x; i < size; i += kThreads) square += load(x[i]) * load(x[i]);
  const float scale = rsqrtf(block_sum<kThreads>(square) / static_cast<float>(size) + eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
  for (int64_t i = threadIdx.x; i < size; i += kThreads) store(y + i, load(weight[i]) * rounded<T>(load(x[i]) * scale));
}

template <typename T>
__global__ void backward_kernel(const T* dy, const T* x, const T* weight, const float* rstd, T* dx, int64_t size) {
  dy += blockIdx.x * size;
  x += blockIdx.x * size;
  dx += blockIdx.x * size;
  const float scale = rstd[blockIdx.x];
  float product = 0;
  for (int64_t i = threadIdx.x; i < size; i += kThreads) product += load(dy[i]) * load(weight[i]) * load(x[i]);
  const float mean = block_sum<kThreads>(product) * scale * scale / static_cast<float>(size);
  for (int64_t i = threadIdx.x; i < size; i += kThreads)
    store(dx + i, rms_norm_gradient(load(dy[i]), load(weight[i]), load(x[i]), mean, scale));
}

}  // namespace

void rms_norm_forward(Type type, const void* x, const void* weight, void* y, float* rstd, int64_t rows, int64_t size,
                      float eps, cudaStream_t stream) {
  if (rows == 0) return;
  dispatch(type, [&](auto t) {
    using T = decltype(t);
    forward_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<T*>(y), rstd, size, eps);
  });
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

void rms_norm_backward(Type type, const void* dy, const void* x, const void* weight, const float* rstd, void* dx,
                       int64_t rows, int64_t size, cudaStream_t stream) {
  if (rows == 0) return;
  dispatch(type, [&](auto t) {
    using T = decltype(t);
    backward_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        static_cast<const T*>(dy), static_cast<const T*>(x), static_cast<const T*>(weight), rstd, static_cast<T*>(dx),
        size);
  });
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace vlmtune::kernels::cuda
