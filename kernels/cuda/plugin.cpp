// Registers the CUDA kernels with LibTorch's dispatcher when this library is loaded; libtorch_cuda must be loaded before.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "kernels/cuda/launch.h"

namespace vlmtune::kernels::cuda {
namespace {

using torch::Tensor;

Type type_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case torch::kFloat:
      return Type::kFloat;
    case torch::kBFloat16:
      return Type::kBFloat16;
    case torch::kHalf:
      return Type::kHalf;
    default:
      TORCH_CHECK(false, "vlmtune: no CUDA kernel for ", x.scalar_type());
  }
}

cudaStream_t stream_of(const Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.device().index()); }

std::tuple<Tensor, Tensor> rms_norm_forward_op(const Tensor& input, const Tensor& weight, double eps) {
  const auto x = input.contiguous(), w = weight.contiguous();
  auto shape = x.sizes().vec();
  shape.back() = 1;
  auto y = torch::empty_like(x), rstd = torch::empty(shape, x.options().dtype(torch::kFloat));
  rms_norm_forward(type_of(x), x.data_ptr(), w.data_ptr(), y.data_ptr(), rstd.data_ptr<float>(), x.numel() / x.size(-1),
                   x.size(-1), static_cast<float>(eps), stream_of(x));
  return {y, rstd};
}

Tensor rms_norm_backward_op(const Tensor& gradient, const Tensor& input, const Tensor& weight, const Tensor& rstd) {
  const auto dy = gradient.contiguous(), x = input.contiguous(), w = weight.contiguous();
  auto dx = torch::empty_like(x);
  rms_norm_backward(type_of(x), dy.data_ptr(), x.data_ptr(), w.data_ptr(), rstd.data_ptr<float>(), dx.data_ptr(),
                    x.numel() / x.size(-1), x.size(-1), stream_of(x));
  return dx;
}

Tensor swiglu_forward_op(const Tensor& gate_input, const Tensor& up_input) {
  const auto gate = gate_input.contiguous(), up = up_input.contiguous();
  auto y = torch::empty_like(gate);
  swiglu_forward(type_of(gate), gate.data_ptr(), up.data_ptr(), y.data_ptr(), gate.numel(), stream_of(gate));
  return y;
}

std::tuple<Tensor, Tensor> swiglu_backward_op(const Tensor& gradient, const Tensor& gate_input,
                                              const Tensor& up_input) {
  const auto dy = gradient.contiguous(), gate = gate_input.contiguous(), up = up_input.contiguous();
  auto dgate = torch::empty_like(gate), dup = torch::empty_like(gate);
  swiglu_backward(type_of(gate), dy.data_ptr(), gate.data_ptr(), up.data_ptr(), dgate.data_ptr(), dup.data_ptr(),
                  gate.numel(), stream_of(gate));
  return {dgate, dup};
}

}  // namespace

TORCH_LIBRARY_IMPL(vlmtune, CUDA, library) {
  library.impl("rms_norm_forward", rms_norm_forward_op);
  library.impl("rms_norm_backward", rms_norm_backward_op);
  library.impl("swiglu_forward", swiglu_forward_op);
  library.impl("swiglu_backward", swiglu_backward_op);
}

}  // namespace vlmtune::kernels::cuda

/// Reports what CUDA's caching allocator hands out, in its units of 512 bytes.
extern "C" void vlmtune_watch_device(void (*allocated)(uint64_t, int64_t), void (*freed)(uint64_t)) {
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([allocated, freed](const Entry& entry) {
    constexpr int64_t kUnit = 512;
    const auto key = static_cast<uint64_t>(entry.addr_);
    if (entry.action_ == Entry::ALLOC) allocated(key, (static_cast<int64_t>(entry.size_) + kUnit - 1) / kUnit * kUnit);
    if (entry.action_ == Entry::FREE_REQUESTED) freed(key);
  });
}
