#include "lib/memory/tracking.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <atomic>

#include "lib/memory/scope.h"

namespace vlmtune {
namespace {

/// Never destroyed: tensors may outlive main.
MemoryAccounts& accounts() {
  static auto* accounts = [] {
    auto ledger = std::make_shared<MemoryLedger>();
    return new MemoryAccounts{ledger, ledger};
  }();
  return *accounts;
}

uint64_t key_of(const void* context) { return reinterpret_cast<uint64_t>(context); }

void free_cpu(void* data) {
  if (data == nullptr) return;
  accounts().host->freed(key_of(data));
  c10::free_cpu(data);
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_cpu, c10::Device(c10::kCPU)};
    accounts().host->check_room(static_cast<int64_t>(bytes));
    void* data = c10::alloc_cpu(bytes);  // throws when memory runs out
    if (!UncountedScope::active()) accounts().host->allocated(key_of(data), static_cast<int64_t>(bytes));
    return {data, data, &free_cpu, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_cpu; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

/// Keys are unique, so that the account which does not know one leaves it alone.
void free_meta(void* context) {
  const auto& [device, host, statistics] = accounts();
  device->freed(key_of(context));
  if (host != device) host->freed(key_of(context));
}

/// Hands out memory that does not exist, under odd keys, which no CPU address is.
class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    static std::atomic<uint64_t> made{0};
    void* context = reinterpret_cast<void*>(2 * made++ + 1);
    if (bytes > 0 && !UncountedScope::active())
      (HostScope::active() ? accounts().host : accounts().device)
          ->allocated(key_of(context), static_cast<int64_t>(bytes));
    return {nullptr, context, &free_meta, c10::Device(c10::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_meta; }
  void copy_data(void*, const void*, size_t) const override {}
};

}  // namespace

void track_allocations() {
  static CpuAllocator cpu;
  static MetaAllocator meta;
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 1);  // training takes again what the loader's threads have freed
#endif
  c10::SetCPUAllocator(&cpu, /*priority=*/10);
  c10::SetAllocator(c10::kMeta, &meta, /*priority=*/255);
}

void set_memory_accounts(MemoryAccounts next) { accounts() = std::move(next); }
const MemoryAccounts& memory_accounts() { return accounts(); }

void claim_memory(const torch::Tensor& tensor, MemoryCategory category) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const auto key = key_of(tensor.storage().data_ptr().get_context());
  accounts().device->move(key, category);
}

std::string enter_memory_phase(std::string_view name) {
  const auto& [device, host, statistics] = accounts();
  auto before = device->enter_phase(name);
  if (host != device) host->enter_phase(name);
  return before;
}

}  // namespace vlmtune
