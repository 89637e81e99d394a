// Reductions over a block, with the result in every thread.
#pragma once

namespace vlmtune::kernels::cuda {

template <int kThreads, typename F>
__device__ float block_reduce(float value, F combine) {
  __shared__ float partial[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, offset));
  __syncthreads();  // an earlier result may still be read
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float result = partial[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) result = combine(result, partial[warp]);
  return result;
}

template <int kThreads>
__device__ float block_sum(float value) {
  return block_reduce<kThreads>(value, [](float a, float b) { return a + b; });
}
template <int kThreads>
__device__ float block_max(float value) {
  return block_reduce<kThreads>(value, [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace vlmtune::kernels::cuda
