// quantize: a model folder whose weights are in few bits.
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/pipeline/model_files.h"
#include "lib/pipeline/outputs.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// Command-line options are shorthands of recipe keys.
std::vector<std::string> as_sets(const QuantizeArguments& a) {
  std::vector<std::string> sets;
  if (a.bits || a.recipe.empty()) sets.push_back(fmt::format("quantization.bits={}", a.bits.value_or(4)));
  const auto set = [&](const char* key, const std::string& value) {
    sets.push_back(fmt::format("{}={}", key, nlohmann::json(value).dump()));
  };
  if (!a.model.empty()) set("model.path", a.model);
  if (!a.type.empty()) set("quantization.type", a.type);
  sets.insert(sets.end(), a.sets.begin(), a.sets.end());
  return sets;
}

}  // namespace

int run_quantize(const QuantizeArguments& a) {
  auto recipe = load_recipe(a.recipe, Command::kInfer, as_sets(a));
  if (recipe.quantization.bits == 16)
    throw usage_error("/quantization/bits: found 16, which quantises nothing, expected 4 or 8");
  if (recipe.model.adapter)
    throw usage_error("/model/adapter: is merged by lora-finetune with output.merge_adapter, not here");
  if (fs::exists(a.output) && !fs::is_empty(a.output))
    throw usage_error("--output: {} is there already: name a new folder", a.output);
  recipe.precision.parameters = declared_precision(recipe.model.path).value_or(Precision::kFp32);
  const auto inputs = assemble_inputs(recipe, Command::kInfer);
  auto parts = assemble_model(recipe, inputs.config, Command::kInfer);
  write_whole_model(recipe, inputs, parts, a.output);
  log_info("wrote {}", a.output);
  return 0;
}

}  // namespace vlmtune
