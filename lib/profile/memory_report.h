// What a run takes: measured (memory.json) or predicted (profile-memory), with one schema for both.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/memory/figures.h"
#include "lib/profile/roofline.h"

namespace vlmtune {

/// One technique more, or one less.
struct AblationRow {
  std::string change;
  int64_t peak_bytes = 0;
  int64_t delta_bytes = 0;   ///< against the row that it is compared with
  double relative_time = 1;  ///< of a step, the first row's being 1
};

struct MemoryReport {
  std::string command, hardware;
  std::optional<int64_t> capacity_bytes;  ///< none: whatever the machine has
  MemoryFigures figures;
  std::optional<StepTime> time;  ///< predicted for one optimizer step, or for prompt and answer
  std::vector<AblationRow> ablation;
  std::string plan;  ///< a recipe patch (JSON text); empty: none was made

  /// 0 where the device's rates are unknown.
  double seconds() const { return time ? time->total() : 0; }
  bool fits() const { return !capacity_bytes || figures.total_bytes() <= *capacity_bytes; }
};

/// The contract's JSON document.
std::string memory_json(const MemoryReport& report);

/// Errors: io_error.
void write_memory_json(const std::filesystem::path& file, const MemoryReport& report);

}  // namespace vlmtune
