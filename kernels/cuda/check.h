// The one macro around every CUDA call.
#pragma once
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#define VLMTUNE_CUDA_CHECK(call)                                                                                   \
  do {                                                                                                             \
    const cudaError_t status_ = (call);                                                                            \
    if (status_ != cudaSuccess) throw std::runtime_error(std::string(#call) + ": " + cudaGetErrorString(status_)); \
  } while (false)
