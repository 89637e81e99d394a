// A device with memory of its own that is the host's in truth: LibTorch's PrivateUse1, every operator being the CPU's on copies.
// With it the paths of CUDA and Ascend run anywhere: what is on which side, what crosses, what is freed when.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <malloc.h>

#include <algorithm>
#include <atomic>

namespace {

using torch::Tensor;
const c10::Device kDevice(c10::kPrivateUse1, 0);

void (*g_allocated)(uint64_t, int64_t) = nullptr;
void (*g_freed)(uint64_t) = nullptr;
std::atomic<int64_t> g_now = 0, g_peak = 0;
constexpr int64_t kContextBytes = 100 << 20;

void free_bytes(void* data) {
  if (data != nullptr) g_now -= static_cast<int64_t>(::malloc_usable_size(data));
  if (data != nullptr && g_freed != nullptr) g_freed(reinterpret_cast<uint64_t>(data));
  c10::free_cpu(data);
}

struct HostDeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes > 0 ? c10::alloc_cpu(bytes) : nullptr;
    if (data != nullptr) g_peak = std::max(g_peak.load(), g_now += static_cast<int64_t>(::malloc_usable_size(data)));
    if (data != nullptr && g_allocated != nullptr)
      g_allocated(reinterpret_cast<uint64_t>(data), static_cast<int64_t>(bytes));
    return {data, data, &free_bytes, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_bytes; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
} g_allocator;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kPrivateUse1;
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
} g_hooks;

c10::DispatchKeySet keys() { return c10::DispatchKeySet(c10::DispatchKey::PrivateUse1); }

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &g_allocator, keys(), type.value_or(torch::kFloat), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &g_allocator, keys(), type.value_or(torch::kFloat));
}

/// The same memory, seen as the CPU's.
Tensor on_cpu(const Tensor& x) {
  return x.is_cpu() ? x
                    : torch::from_blob(x.data_ptr(), x.sizes(), x.strides(),
                                       x.options().device(torch::kCPU).requires_grad(false));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const Tensor& x) { return on_cpu(x).item(); }

const Tensor& resize(const Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = x.unsafeGetTensorImpl();
  const auto bytes = static_cast<size_t>(c10::multiply_integers(size)) * x.element_size();
  if (x.storage().nbytes() < bytes) {
    auto* storage = x.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(g_allocator.allocate(bytes));
    storage->set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  return x;
}

void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

const bool g_registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, &g_allocator);
  c10::register_privateuse1_backend("host_device");
  at::RegisterPrivateUse1HooksInterface(&g_hooks);
  return true;
}();

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar_dense);
  library.impl("resize_", resize);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

extern "C" void vlmtune_watch_device(void (*allocated)(uint64_t, int64_t), void (*freed)(uint64_t)) {
  g_allocated = allocated;
  g_freed = freed;
}

/// Nothing is cached: what is reserved is what is allocated.
extern "C" void vlmtune_device_statistics(int64_t statistics[4]) {
  statistics[0] = statistics[2] = g_peak;
  statistics[1] = g_now;
  statistics[3] = g_now + kContextBytes;
}
