// Every memory technique of the program, as a change of a recipe. A new one joins by a row in techniques.cpp.
#pragma once
#include <array>
#include <span>

#include "lib/recipe/recipe.h"

namespace vlmtune {

struct Technique {
  const char* name;
  std::array<const char*, 2> keys;  ///< what it changes, as JSON pointers; null: no second one
  bool may_be_planned;              ///< a planner may choose it: results stay, to rounding or nearly (QLoRA)
  bool (*is_on)(const Recipe& recipe, Command command);
  /// Whether it can do anything for this recipe.
  bool (*applies)(const Recipe& recipe, Command command);
  void (*turn_on)(Recipe& recipe);
  void (*turn_off)(Recipe& recipe);
};

/// In the order in which an ablation adds them.
std::span<const Technique> techniques();

}  // namespace vlmtune
