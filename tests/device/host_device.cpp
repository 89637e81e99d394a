// A device with memory of its own that is the host's in truth: LibTorch's PrivateUse1, every operator being the CPU's on copies.
// With it the paths of CUDA and Ascend run anywhere: what is on which side, what crosses, what is freed when, and, since copies
// from and to pinned memory are as late as may be, what is waited for. Operators run at once, after what their
// stream has queued, and copies of other memory as well: a copy that comes too early does not show.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/device/streams.h"

namespace {

using torch::Tensor;
const c10::Device kDevice(c10::kPrivateUse1, 0);

void (*g_allocated)(uint64_t, int64_t) = nullptr;
void (*g_freed)(uint64_t) = nullptr;
std::atomic<int64_t> g_now = 0, g_peak = 0;
constexpr int64_t kContextBytes = 100 << 20;

Streams& streams() {
  static auto* all = new Streams;  // threads may outlive main
  return *all;
}
thread_local Streams::Id t_stream = 0;
c10::Stream stream_of(Streams::Id id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

void free_bytes(void* data) {
  if (data == nullptr) return;
  g_now -= static_cast<int64_t>(::malloc_usable_size(data));
  if (g_freed != nullptr) g_freed(reinterpret_cast<uint64_t>(data));
  streams().freed(data, [data] { c10::free_cpu(data); });
}

struct HostDeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes > 0 ? c10::alloc_cpu(bytes) : nullptr;
    if (data != nullptr) g_peak = std::max(g_peak.load(), g_now += static_cast<int64_t>(::malloc_usable_size(data)));
    if (data != nullptr) std::memset(data, 0xFF, bytes);  // not a number
    if (data != nullptr) streams().allocated(data, t_stream);
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
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return stream_of(t_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream_of(streams().make()); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(t_stream, stream.id()));
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Streams::Event;
    *static_cast<Streams::Event*>(*event) = streams().now(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    streams().wait(stream.id(), *static_cast<Streams::Event*>(event));
  }
  bool queryEvent(void* event) const override { return streams().is_over(*static_cast<Streams::Event*>(event)); }
  void synchronizeEvent(void* event) const override { streams().run_until(*static_cast<Streams::Event*>(event)); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Streams::Event*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override { return streams().is_over(streams().now(stream.id())); }
  void synchronizeStream(const c10::Stream& stream) const override { streams().run(stream.id()); }
  void synchronizeDevice(c10::DeviceIndex) const override { streams().run_all(); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

/// Host memory that copies need not be waited for; it is used again after them.
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto host = c10::GetCPUAllocator()->allocate(bytes);
    void* data = host.get();
    const std::lock_guard lock(mutex);
    live.emplace(data, std::pair(bytes, std::move(host)));
    return {data, data, [](void* p) { pinned().free(p); }, torch::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool holds(const void* data) {
    const std::lock_guard lock(mutex);
    auto after = live.upper_bound(data);
    if (after == live.begin()) return false;
    const auto& [begin, block] = *std::prev(after);
    return data < static_cast<const std::byte*>(begin) + std::max<size_t>(block.first, 1);
  }
  static PinnedAllocator& pinned() {
    static auto* allocator = new PinnedAllocator;
    return *allocator;
  }

 private:
  void free(void* data) {
    decltype(live)::node_type block;
    {
      const std::lock_guard lock(mutex);
      block = live.extract(data);
    }
    streams().freed(data, [host = std::make_shared<c10::DataPtr>(std::move(block.mapped().second))] {});
  }
  std::mutex mutex;
  std::map<const void*, std::pair<size_t, c10::DataPtr>> live;
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::pinned().holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::pinned(); }
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

/// The same memory without a hold on it.
Tensor borrowed(const Tensor& x) {
  return torch::from_blob(x.data_ptr(), x.sizes(), x.strides(), x.options().device(torch::kCPU).requires_grad(false));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  const auto& host = from.is_cpu() ? from : to;
  if (non_blocking && host.is_cpu() && PinnedAllocator::pinned().holds(host.data_ptr())) {
    const auto& device = from.is_cpu() ? to : from;
    streams().queue(t_stream, {device.storage().data(), host.storage().data()},
                    [a = borrowed(from), b = borrowed(to)] { b.copy_(a); });
    return to;
  }
  streams().run(t_stream);
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const Tensor& x) {
  streams().run(t_stream);
  return on_cpu(x).item();
}

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

void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  streams().run(t_stream);
  at::native::cpu_fallback(op, stack);
}

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
