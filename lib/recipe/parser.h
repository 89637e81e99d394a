// From a JSON document to the structs, by the table of fields.
#pragma once
#include <string>

#include "lib/recipe/document.h"
#include "lib/recipe/recipe.h"

namespace vlmtune {

/// Sets what `document` names in `recipe` and leaves the rest. Errors: usage_error "origin: /pointer: ..." for unknown
/// keys, wrong types, values out of range, and values that `command` uses but this version cannot do yet.
void read_fields(const Object& document, const std::string& origin, Command command, Recipe& recipe);

/// The same for a device.
void read_hardware_fields(const Object& document, const std::string& origin, Hardware& hardware);

/// Dotted names in `document` that `command` does not use and that differ from `defaults`; a section of which nothing
/// is used is named alone.
std::vector<std::string> unused_settings(const Object& document, Command command, const Object& defaults);

/// The whole recipe as a document.
Object write_fields(const Recipe& recipe);

}  // namespace vlmtune
