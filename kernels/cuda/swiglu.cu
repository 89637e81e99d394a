#include "kernels/cuda/check.h"
#include "kernels/cuda/convert.cuh"

namespace vlmtune::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <typename T>
__global__ void forward_kernel(const T* gate, const T* up, T* y, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const float g = load(gate[i]);
  store(y + i, rounded<T>(g * sigmoid(g)) * load(up[i]));
}

template <typename T>
__global__ void backward_kernel(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const float g = load(gate[i]), s = sigmoid(g), d = load(dy[i]);
  store(dup + i, swiglu_up_gradient(d, g, s));
  store(dgate + i, swiglu_gate_gradient(d, g, load(up[i]), s));
}

}  // namespace

void swiglu_forward(Type type, const void* gate, const void* up, void* y, int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  dispatch(type, [&](auto t) {
    using T = decltype(t);
    forward_kernel<<<num_blocks(count, kThreads), kThreads, 0, stream>>>(
        static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(y), count);
  });
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

void swiglu_backward(Type type, const void* dy, const void* gate, const void* up, void* dgate, void* dup, int64_t count,
                     cudaStream_t stream) {
  if (count == 0) return;
  dispatch(type, [&](auto t) {
    using T = decltype(t);
    backward_kernel<<<num_blocks(count, kThreads), kThreads, 0, stream>>>(
        static_cast<const T*>(dy), static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(dgate),
        static_cast<T*>(dup), count);
  });
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace vlmtune::kernels::cuda
