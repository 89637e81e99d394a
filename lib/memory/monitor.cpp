#include "lib/memory/monitor.h"

#include "lib/base/bytes.h"
#include "lib/base/log.h"

namespace vlmtune {
namespace {

constexpr int64_t kSettled = 3;  // steps after which a run has all that it keeps: optimizer state, caches
constexpr int64_t kSlack = 64 << 20;

bool has_grown(int64_t now, int64_t first) { return now > first + first / 5 + kSlack; }

}  // namespace

void MemoryMonitor::step(int64_t allocated, int64_t peak, int64_t resident) {
  if (++steps_ == kSettled) {
    first_allocated_ = allocated;
    first_resident_ = resident;
  }
  if (limit_ && peak > *limit_ - *limit_ / 20 && !warned_limit_) {
    warned_limit_ = true;
    log_warning("memory: a step took {} of {}; longer rows may not fit", format_bytes(peak), format_bytes(*limit_));
  }
  if (steps_ <= kSettled) return;
  if (has_grown(allocated, first_allocated_) && !warned_growth_) {
    warned_growth_ = true;
    log_warning("memory: {} stay allocated between steps, {} did at first", format_bytes(allocated),
                format_bytes(first_allocated_));
  }
  if (has_grown(resident, first_resident_) && !warned_resident_) {
    warned_resident_ = true;
    log_warning("memory: the process has grown from {} to {} of resident memory", format_bytes(first_resident_),
                format_bytes(resident));
  }
}

}  // namespace vlmtune
