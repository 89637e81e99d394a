// Watches a run's memory from step to step: warns when it grows, and before it reaches its limit.
#pragma once
#include <cstdint>
#include <optional>

namespace vlmtune {

class MemoryMonitor {
 public:
  /// `limit`: bytes that the device may allocate, if there is one.
  explicit MemoryMonitor(std::optional<int64_t> limit) : limit_(limit) {}

  /// After a step: what is allocated now, the most it was during the step, and the process's resident memory, in bytes.
  /// Logs each warning once.
  void step(int64_t allocated, int64_t peak, int64_t resident);

 private:
  std::optional<int64_t> limit_;
  int64_t steps_ = 0, first_allocated_ = 0, first_resident_ = 0;
  bool warned_growth_ = false, warned_resident_ = false, warned_limit_ = false;
};

}  // namespace vlmtune
