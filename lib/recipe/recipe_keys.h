// The names of the recipe, for aliases and for suggestions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

/// The keys of a top-level section ("" for the top level itself); empty for what is no section.
const std::vector<std::string>& section_keys(std::string_view section);

/// A text such as ", did you mean \"learning_rate\"?" for an unknown key of the object at `pointer`; empty when nothing
/// is close.
std::string suggest_key(std::string_view key, std::string_view pointer, const std::vector<std::string>& siblings);

}  // namespace vlmtune
