// Runs a parsed template.
#pragma once
#include <string>
#include <unordered_map>

#include "lib/text/jinja/ast.h"

namespace vlmtune::jinja {

/// Renders `block` with the given variables. Errors: Error with the line; also when the work has no end in sight.
Text run(const Block& block, const std::unordered_map<std::string, Value>& variables);

}  // namespace vlmtune::jinja
