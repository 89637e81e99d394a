// Devices as data: recipes/hardware/<name>.json.
#pragma once
#include <filesystem>
#include <string_view>
#include <vector>

#include "lib/recipe/document.h"

namespace vlmtune {

/// The validated JSON object of the device called `name`; `origin` asked for it. Errors: as load_hardware().
Value read_hardware(std::string_view name, const std::vector<std::filesystem::path>& dirs, std::string_view origin);

}  // namespace vlmtune
