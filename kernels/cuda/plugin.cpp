// Registers the CUDA kernels with LibTorch's dispatcher when this library is loaded; libtorch_cuda must be loaded before.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <fstream>
#include <string>

#include "kernels/cpu/quantize.h"
#include "kernels/cuda/launch.h"
#include "kernels/dynamic_values.h"
#include "kernels/quantized.h"

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

Tensor cross_entropy_op(Tensor& logits, const Tensor& any_targets, bool needs_gradient) {
  auto x = logits.contiguous();
  const auto targets = any_targets.contiguous();
  const auto losses = torch::empty({x.size(0)}, x.options().dtype(torch::kFloat));
  cross_entropy(type_of(x), x.data_ptr(), targets.data_ptr<int64_t>(), losses.data_ptr<float>(), x.size(0), x.size(1),
                needs_gradient, stream_of(x));
  if (needs_gradient && !x.is_same(logits)) logits.copy_(x);
  return losses.sum();
}

/// Keeps x's memory order.
Tensor rope_op(const Tensor& x_any, const Tensor& cos_table, const Tensor& sin_table, double sign) {
  const auto x = x_any.stride(-1) == 1 ? x_any : x_any.contiguous();
  const auto cos = cos_table.contiguous(), sin = sin_table.contiguous();
  auto y = torch::empty_strided(x.sizes(), x.strides(), x.options());
  const RopeShape shape{x.size(0),       x.size(1), x.size(2), x.size(3), {x.stride(0), x.stride(1), x.stride(2)},
                        cos.size(0) == 1};
  rope(type_of(x), x.data_ptr(), cos.data_ptr(), sin.data_ptr(), y.data_ptr(), shape, static_cast<float>(sign),
       stream_of(x));
  return y;
}

/// A table of the host's, kept on the device of `like`.
const float* on_device(const float* table, int64_t size, const Tensor& like) {
  static auto* kept = new std::map<std::pair<const float*, int>, Tensor>();
  auto& copy = (*kept)[{table, like.device().index()}];
  if (!copy.defined()) copy = torch::from_blob(const_cast<float*>(table), {size}).to(like.device());
  return copy.data_ptr<float>();
}
const float* on_device(const Tensor& table, const Tensor& like) {
  return on_device(table.data_ptr<float>(), table.numel(), like);
}

Tensor dequantize_op(const Tensor& codes, const Tensor& scales, const std::optional<Tensor>& nested,
                     const std::optional<Tensor>& offset, int64_t quant_type, int64_t block, int64_t row_size,
                     at::IntArrayRef part, torch::ScalarType type) {
  const auto kind = static_cast<QuantType>(quant_type);
  auto y = torch::empty({part[1], part[3]}, codes.options().dtype(type));
  const float* values = kind == QuantType::kNf4 ? cpu::nf4_values() : cpu::int4_values();
  const QuantizedCodes weight{codes.data_ptr(),
                              kind == QuantType::kInt8 ? nullptr : on_device(values, 16, codes),
                              scales.data_ptr(),
                              nested ? nested->data_ptr<float>() : nullptr,
                              offset ? offset->data_ptr<float>() : nullptr,
                              nested ? on_device(dynamic_values(true), codes) : nullptr,
                              block};
  dequantize(type_of(y), weight, row_size, part[0], part[1], part[2], part[3], y.data_ptr(), stream_of(codes));
  return y;
}

void lion_op(Tensor& parameter, const Tensor& any_gradient, Tensor& momentum, double rate, double beta1, double beta2,
             double weight_decay) {
  const auto gradient = any_gradient.contiguous();
  lion(parameter.data_ptr<float>(), gradient.data_ptr<float>(), momentum.data_ptr<float>(), parameter.numel(),
       rule_of(rate, beta1, beta2, 0, weight_decay), stream_of(parameter));
}

void adamw_8bit_op(Tensor& parameter, const Tensor& any_gradient, Tensor& average_codes, Tensor& average_scales,
                   Tensor& square_codes, Tensor& square_scales, double rate, double beta1, double beta2, double eps,
                   double weight_decay, double step) {
  const auto gradient = any_gradient.contiguous();
  const Moments8bit moments{average_codes.data_ptr<uint8_t>(),          square_codes.data_ptr<uint8_t>(),
                            average_scales.data_ptr<float>(),           square_scales.data_ptr<float>(),
                            on_device(dynamic_values(true), parameter), on_device(dynamic_values(false), parameter)};
  adamw_8bit(parameter.data_ptr<float>(), gradient.data_ptr<float>(), moments, parameter.numel(),
             rule_of(rate, beta1, beta2, eps, weight_decay), static_cast<float>(rate / (1 - std::pow(beta1, step))),
             static_cast<float>(std::sqrt(1 - std::pow(beta2, step))), stream_of(parameter));
}

void round_stochastically_op(Tensor& parameter, const Tensor& values, int64_t seed) {
  round_stochastically(values.data_ptr<float>(), parameter.data_ptr(), parameter.numel(), static_cast<uint64_t>(seed),
                       stream_of(parameter));
}

}  // namespace

TORCH_LIBRARY_IMPL(vlmtune, CUDA, library) {
  library.impl("cross_entropy_", cross_entropy_op);
  library.impl("rope", rope_op);
  library.impl("dequantize", dequantize_op);
  library.impl("lion_", lion_op);
  library.impl("adamw_8bit_", adamw_8bit_op);
  library.impl("round_stochastically_", round_stochastically_op);
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

/// Peak of what was allocated, reserved now, peak of what was reserved (all of the caching allocator); in use of the whole device.
extern "C" void vlmtune_device_statistics(int64_t statistics[4]) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  statistics[0] = stats.allocated_bytes[kAll].peak;
  statistics[1] = stats.reserved_bytes[kAll].current;
  statistics[2] = stats.reserved_bytes[kAll].peak;
  statistics[3] = static_cast<int64_t>(total - free);
}

/// [{"address", "bytes", "stream", "blocks": [{"bytes", "requested", "allocated"}]}], a segment each.
extern "C" void vlmtune_snapshot_when_full(const char* file) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  allocator::attachOutOfMemoryObserver([name = std::string(file)](int64_t, size_t, size_t, size_t) {
    std::ofstream out(name);
    const char* between = "[";
    for (const auto& segment : allocator::snapshot().segments) {
      out << between << "{\"address\": " << segment.address << ", \"bytes\": " << segment.total_size
          << ", \"stream\": " << reinterpret_cast<uintptr_t>(segment.stream) << ", \"blocks\": [";
      const char* comma = "";
      for (const auto& block : segment.blocks) {
        out << comma << "{\"bytes\": " << block.size << ", \"requested\": " << block.requested_size
            << ", \"allocated\": " << (block.allocated ? "true" : "false") << "}";
        comma = ", ";
      }
      out << "]}";
      between = ",\n";
    }
    out << "]\n";
  });
}
