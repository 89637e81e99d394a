// The fastest form of a recipe that fits, by the techniques that the user left open.
#pragma once
#include <set>

#include "lib/profile/dry_run.h"

namespace vlmtune {

struct PlanTrial {
  std::string change;  ///< the techniques that are on, of those that the user left open
  int64_t total_bytes = 0;
  double seconds = 0;
  bool fits = false;
};

struct FittingPlan {
  bool fits = false;
  Recipe recipe;                  ///< the one that fits; else the smallest that was tried
  std::string patch;              ///< JSON to merge into the recipe
  MemoryReport report;            ///< of that recipe
  std::vector<PlanTrial> trials;  ///< in the order in which they were looked at
  std::vector<std::string> kept;  ///< keys of techniques that stayed as the user named them
};

/// The recipe that a run follows: with memory.plan "auto" the plan's, each rejected trial being logged; with a budget, the
/// process may not allocate more on its device. Errors: UserError (out of memory) when no plan fits.
Recipe apply_memory_plan(const Recipe& recipe, Command command, const std::set<std::string>& fixed);

/// `fixed` holds JSON pointers of the keys that the user named; they stay. Errors: as dry_run.
FittingPlan plan_memory(const Recipe& recipe, Command command, const std::set<std::string>& fixed,
                        const DryRunOptions& options);

}  // namespace vlmtune
