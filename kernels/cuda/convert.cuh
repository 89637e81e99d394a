// Loads and stores of the three number formats, with fp32 in between.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/launch.h"

namespace vlmtune::kernels::cuda {

__device__ inline float load(float x) { return x; }
__device__ inline float load(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float load(__half x) { return __half2float(x); }
__device__ inline void store(float* y, float value) { *y = value; }
__device__ inline void store(__nv_bfloat16* y, float value) { *y = __float2bfloat16(value); }
__device__ inline void store(__half* y, float value) { *y = __float2half(value); }

/// Value rounded to T and back.
template <typename T>
__device__ float rounded(float value) {
  T stored;
  store(&stored, value);
  return load(stored);
}

/// Blocks of `threads` that have a thread for each of `count` elements.
inline unsigned num_blocks(int64_t count, int threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

/// Calls f with a value of the C++ type that `type` stands for.
template <typename F>
void dispatch(Type type, F f) {
  if (type == Type::kFloat) return f(float{});
  if (type == Type::kBFloat16) return f(__nv_bfloat16{});
  return f(__half{});
}

}  // namespace vlmtune::kernels::cuda
