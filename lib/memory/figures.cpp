#include "lib/memory/figures.h"

#include <algorithm>

namespace vlmtune {
namespace {

size_t highest(const std::vector<MemoryLedger::Phase>& phases) {
  const auto at = std::max_element(phases.begin(), phases.end(),
                                   [](const auto& a, const auto& b) { return a.peak.bytes < b.peak.bytes; });
  return static_cast<size_t>(at - phases.begin());
}

}  // namespace

MemoryFigures memory_figures(const MemoryAccounts& accounts, int64_t overhead_bytes) {
  MemoryFigures figures;
  figures.phases = accounts.device->phases();
  figures.peak_phase = highest(figures.phases);
  const auto* simulator = accounts.device->simulator();
  figures.peak_reserved_bytes = simulator ? simulator->peak_reserved_bytes() : figures.peak_allocated_bytes();
  figures.overhead_bytes = overhead_bytes;
  if (accounts.statistics) {
    const auto device = accounts.statistics();
    figures.allocator_peak_bytes = device.allocated_peak;
    figures.peak_reserved_bytes = device.reserved_peak;
    figures.overhead_bytes = device.in_use - device.reserved;
  }
  const auto host = accounts.host->phases();
  figures.host_peak_bytes = host[highest(host)].peak.bytes;
  return figures;
}

}  // namespace vlmtune
