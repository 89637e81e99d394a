// A memory report for a terminal: compact tables with bars.
#pragma once
#include <string>

#include "lib/profile/planner.h"

namespace vlmtune {

/// Verdict, the peak by category and by module, the phases, and the ablation when there is one.
std::string memory_table(const MemoryReport& report);

/// What a planner looked at, a line each.
std::string trials_table(const FittingPlan& plan);

}  // namespace vlmtune
