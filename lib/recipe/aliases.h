// Names that users of LLaVA, ms-swift, LLaMA-Factory and PEFT know, and where they live here.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "lib/recipe/document.h"

namespace vlmtune {

struct Alias {
  std::string_view name;
  std::string_view section, key;             // the setting meant
  Value (*convert)(const Value&) = nullptr;  // from the other tool's values to ours; nullptr: as it is
};

std::span<const Alias> alias_table();

/// Moves every alias, at the top level or in a section that has no key of that name, to the setting meant, and logs
/// its new name. Errors: usage_error when the setting is also given, with another value.
void resolve_aliases(Object& document, std::string_view origin);

}  // namespace vlmtune
