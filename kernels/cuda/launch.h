// The CUDA kernels of this plugin as plain functions on device pointers; `plugin.cpp` registers them with LibTorch. T is
// given by `type`: 0 fp32, 1 bf16, 2 fp16. All run on `stream` and do not wait.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

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

}  // namespace vlmtune::kernels::cuda
