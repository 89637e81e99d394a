// profile-memory --report: one HTML file with everything in it, to be looked at in a browser.
#pragma once
#include <filesystem>

#include "lib/profile/planner.h"

namespace vlmtune {

struct HardwareVerdict {
  std::string name;
  int64_t capacity_bytes = 0, total_bytes = 0;
};

/// The peak by category and module, memory over time, the phases, the ablation, and whether the recipe fits each device.
/// The run must have recorded its timeline. Errors: io_error.
void write_memory_page(const std::filesystem::path& file, const DryRun& run,
                       const std::vector<HardwareVerdict>& devices);

}  // namespace vlmtune
