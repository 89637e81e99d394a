// libFuzzer target: any bytes as a recipe either load, and then print and read back equal, or end in a UserError.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/recipe/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vlmtune;
  static const auto path = std::filesystem::temp_directory_path() / fmt::format("fuzz_recipe_{}.json", ::getpid());
  set_log_level(LogLevel::kError);
  LoadOptions options;
  options.require_inputs = false;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto command : {Command::kPretrain, Command::kLoraFinetune, Command::kInfer}) {
    try {
      std::ofstream(path) << text;
      const Recipe recipe = load_recipe(path, command, {}, options);
      std::ofstream(path) << print_recipe(recipe);
      if (load_recipe(path, command, {}, options) != recipe) std::abort();
    } catch (const UserError&) {
    }
  }
  try {
    load_recipe({}, Command::kLoraFinetune, {text}, options);
  } catch (const UserError&) {
  }
  return 0;
}
