// What each technique brings: added one by one to a recipe without any, then taken away one by one from the recipe.
#pragma once
#include "lib/profile/dry_run.h"

namespace vlmtune {

/// The first row is the recipe with every technique off; the times are relative to it. Rows that add are compared with the
/// row before, rows that remove with the recipe as it is.
std::vector<AblationRow> ablate(const Recipe& recipe, Command command, const DryRunOptions& options);

}  // namespace vlmtune
