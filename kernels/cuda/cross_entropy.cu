#include "kernels/cuda/check.h"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/reduce.cuh"

namespace vlmtune::kernels::cuda {
namespace {

constexpr int kThreads = 512;

template <typename T>
__global__ void row_kernel(T* x, const int64_t* targets, float* losses, int64_t size, bool needs_gradient) {
  x += blockIdx.x * size;
  const int64_t target = targets[blockIdx.x];
  float largest = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < size; i += kThreads) largest = fmaxf(largest, load(x[i]));
  largest = block_max<kThreads>(largest);
  for (int64_t i = threadIdx.x; i < size; i += kThreads) sum += expf(load(x[i]) - largest);
  sum = block_sum<kThreads>(sum);
  const float of_target = load(x[target]) - largest;
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) - of_target;
  if (!needs_gradient) return;
  __syncthreads();  // every thread has read the target's logit
  for (int64_t i = threadIdx.x; i < size; i += kThreads)
    store(x + i, expf(load(x[i]) - largest) / sum - (i == target ? 1.0f : 0.0f));
}

}  // namespace

void cross_entropy(Type type, void* logits, const int64_t* targets, float* losses, int64_t rows, int64_t size,
                   bool needs_gradient, cudaStream_t stream) {
  if (rows == 0) return;
  dispatch(type, [&](auto t) {
    using T = decltype(t);
    row_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(static_cast<T*>(logits), targets, losses, size,
                                                                     needs_gradient);
  });
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace vlmtune::kernels::cuda
