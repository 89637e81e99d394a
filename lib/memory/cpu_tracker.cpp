#include "lib/memory/cpu_tracker.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <fstream>
#include <string>

namespace vlmtune {
namespace {

std::atomic<int64_t> g_now{0}, g_peak{0};

/// A block begins with its size, 64 bytes before the data, so that freeing needs no table and data stay aligned.
constexpr size_t kHeader = 64;

void free_block(void* data) {
  if (data == nullptr) return;
  char* block = static_cast<char*>(data) - kHeader;
  g_now -= *reinterpret_cast<int64_t*>(block);
  c10::free_cpu(block);
}

class TrackingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_block, c10::Device(c10::kCPU)};
    auto* block = static_cast<char*>(c10::alloc_cpu(bytes + kHeader));  // throws when memory runs out
    *reinterpret_cast<int64_t*>(block) = static_cast<int64_t>(bytes);
    const int64_t now = g_now += static_cast<int64_t>(bytes);
    int64_t peak = g_peak;
    while (now > peak && !g_peak.compare_exchange_weak(peak, now)) {
    }
    void* data = block + kHeader;
    return {data, data, &free_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

int64_t status_kib(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(std::char_traits<char>::length(key) + 1));
  return 0;
}

}  // namespace

void track_cpu_allocations() {
  static TrackingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/10);
}

int64_t cpu_allocated_bytes() { return g_now; }
int64_t cpu_peak_bytes() { return g_peak; }
void reset_cpu_peak() { g_peak = g_now.load(); }
int64_t resident_bytes() { return status_kib("VmRSS") * 1024; }
int64_t peak_resident_bytes() { return status_kib("VmHWM") * 1024; }

}  // namespace vlmtune
