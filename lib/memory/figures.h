// What a run takes, measured while it ran or predicted by a dry run: one set of figures for both.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lib/memory/tracking.h"

namespace vlmtune {

struct MemoryFigures {
  std::vector<MemoryLedger::Phase> phases;      ///< in the order in which they began
  size_t peak_phase = 0;                        ///< index of the phase with the highest peak
  int64_t peak_reserved_bytes = 0;              ///< what the device's allocator holds for it
  int64_t overhead_bytes = 0;                   ///< outside the allocator: context, libraries, collectives
  int64_t host_peak_bytes = 0;                  ///< allocated on the host, which may be the device itself
  int64_t loader_bytes = 0;                     ///< samples decoded ahead, on the host, at most
  std::optional<int64_t> allocator_peak_bytes;  ///< allocated, as the device's own allocator counts it

  int64_t peak_allocated_bytes() const { return phases[peak_phase].peak.bytes; }
  int64_t total_bytes() const { return peak_reserved_bytes + overhead_bytes; }
};

/// The figures of the accounts so far. What the device's own allocator says goes before `overhead_bytes` and our simulation.
MemoryFigures memory_figures(const MemoryAccounts& accounts, int64_t overhead_bytes);

}  // namespace vlmtune
