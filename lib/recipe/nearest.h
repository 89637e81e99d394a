// "Did you mean ...?" for misspelt names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

/// The candidate with the fewest typing slips (insert, delete, replace, swap) from `word`, or that starts with it; empty when
/// none is close.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace vlmtune
