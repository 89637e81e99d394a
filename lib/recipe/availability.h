// Settings that the recipe knows but this version cannot do yet: refused by name, never ignored.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "lib/recipe/document.h"

namespace vlmtune {

struct Availability {
  std::string_view pointer;  // JSON pointer of the key
  std::string_view works;    // the values that work, as a pattern (see matches_pattern)
};

/// One row for each setting with values that do not work yet. A feature that arrives deletes or widens its row.
std::span<const Availability> availability_table();

/// The row that refuses `value` at `pointer`, or nullptr.
const Availability* find_unavailable(std::string_view pointer, const Value& value);

}  // namespace vlmtune
