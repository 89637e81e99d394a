// Tokens to the tree of a template.
#pragma once
#include <string_view>

#include "lib/text/jinja/ast.h"

namespace vlmtune::jinja {

/// Errors: Error with the line, also for what this subset leaves out and for nesting deeper than 60.
Block parse(std::string_view source);

}  // namespace vlmtune::jinja
