#include "lib/recipe/hardware.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/recipe/parser.h"
#include "lib/recipe/recipe.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

std::set<std::string> device_names(const std::vector<fs::path>& dirs) {
  std::set<std::string> names{"cpu"};
  for (const auto& dir : dirs) {
    std::error_code error;
    for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error))
      if (entry->path().extension() == ".json") names.insert(entry->path().stem().string());
  }
  return names;
}

/// For the error about an unknown device.
std::string known_names(const std::vector<fs::path>& dirs) {
  std::string text;
  for (const auto& name : device_names(dirs)) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::vector<fs::path> default_hardware_dirs(const fs::path& recipe_file) {
  std::vector<fs::path> dirs;
  if (!recipe_file.empty()) dirs.push_back(recipe_file.parent_path() / "hardware");
  dirs.emplace_back("recipes/hardware");
  if (const char* data = std::getenv("VLMTUNE_DATA"); data != nullptr && *data != '\0')
    dirs.push_back(fs::path(data) / "recipes/hardware");
  std::error_code error;
  const auto executable = fs::read_symlink("/proc/self/exe", error);
  if (!error) dirs.push_back(executable.parent_path().parent_path() / "share/vlmtune/recipes/hardware");
  return dirs;
}

std::vector<Hardware> known_hardware(const std::vector<fs::path>& dirs) {
  std::vector<Hardware> devices;
  for (const auto& name : device_names(dirs)) devices.push_back(load_hardware(name, dirs));
  return devices;
}

Value read_hardware(std::string_view name, const std::vector<fs::path>& dirs, std::string_view origin) {
  const bool plain = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  for (const auto& dir : dirs) {
    const auto file = dir / (std::string(name) + ".json");
    std::error_code error;
    if (!plain || !fs::is_regular_file(file, error)) continue;
    Value content = parse_document(read_file(file), file.string());
    if (content.object() == nullptr) throw usage_error("{}: expected an object", file.string());
    Hardware checked;
    read_hardware_fields(*content.object(), file.string(), checked);
    return content;
  }
  if (name == "cpu") return Object{};
  throw usage_error("{}: /hardware: no device is called \"{}\", known are {}", origin, name, known_names(dirs));
}

Hardware load_hardware(std::string_view name, const std::vector<fs::path>& dirs) {
  const Value content = read_hardware(name, dirs, "--hardware");
  Hardware hardware;
  read_hardware_fields(*content.object(), std::string(name), hardware);
  return hardware;
}

}  // namespace vlmtune
