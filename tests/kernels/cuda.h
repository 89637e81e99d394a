#pragma once
#include <dlfcn.h>
#include <torch/torch.h>

#include <string>

namespace vlmtune::kernels {

/// Loads CUDA and our kernels for it; else says why not.
inline std::string cuda_is_missing() {
#ifdef VLMTUNE_CUDA_PLUGIN
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr)
    return std::string("LibTorch's CUDA library does not load here: ") + dlerror();
  if (!torch::cuda::is_available()) return "no GPU";
  return dlopen(VLMTUNE_CUDA_PLUGIN, RTLD_NOW | RTLD_GLOBAL) == nullptr ? dlerror() : "";
#else
  return "built without the CUDA plugin";
#endif
}

}  // namespace vlmtune::kernels
