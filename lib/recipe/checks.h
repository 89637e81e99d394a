// Settings that are fine one by one but not together.
#pragma once
#include <string>
#include <vector>

#include "lib/recipe/layers.h"
#include "lib/recipe/recipe.h"

namespace vlmtune {

/// Errors: usage_error for settings that contradict each other and, when `require_inputs`, for missing ones that a run
/// needs. Warns of settings that have no effect beside others.
void check_recipe(const Recipe& recipe, Command command, const std::string& origin, bool require_inputs);

/// Errors: usage_error when --set gives both of two settings that exclude each other.
void check_set_alternatives(const std::vector<Layer>& set_layers);

}  // namespace vlmtune
