// load_recipe: the layers of a recipe, one over the other, over the subcommand's defaults.
#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/recipe/checks.h"
#include "lib/recipe/hardware.h"
#include "lib/recipe/layers.h"
#include "lib/recipe/parser.h"
#include "lib/recipe/recipe.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// What the document implies for settings that it does not name.
Recipe implied_defaults(const Object& document, Command command) {
  Recipe recipe = default_recipe(command);
  const Value* frozen = find_setting(document, "freeze", "language_model");
  if (command == Command::kPretrain && frozen != nullptr && *frozen == Value(false)) {
    recipe.optimizer.learning_rate = 2e-5;  // LLaVA's stage 2; the projector's 1e-3 would wreck a language model
    recipe.data.group_by_modality_length = true;
  }
  if (const Value* bits = find_setting(document, "quantization", "bits"); bits != nullptr && *bits == Value(int64_t{8}))
    recipe.quantization.type = QuantizationType::kInt8;
  if (const Value* name = find_setting(document, "optimizer", "name"); name != nullptr && *name == Value("lion"))
    recipe.optimizer.betas = {0.9, 0.99};  // the paper's
  const Value* packing = find_setting(document, "data", "packing");
  if (packing != nullptr && *packing == Value(true)) recipe.data.group_by_modality_length = false;
  if (find_setting(document, "schedule", "warmup_steps") != nullptr) recipe.schedule.warmup_ratio = 0;
  return recipe;
}

void derive_accumulation(const Object& document, const std::string& origin, TrainRecipe& train) {
  if (!train.global_batch_size) return;
  const int64_t rows = *train.global_batch_size, micro = train.per_device_batch_size;
  if (rows % micro != 0)
    throw usage_error("{}: /train/global_batch_size: found {}, expected a multiple of per_device_batch_size {}", origin,
                      rows, micro);
  if (find_setting(document, "train", "gradient_accumulation_steps") != nullptr &&
      train.gradient_accumulation_steps != rows / micro)
    throw usage_error(
        "{}: /train/gradient_accumulation_steps: found {} beside global_batch_size {} and per_device_batch_size {}, "
        "expected only one of the two, or {}",
        origin, train.gradient_accumulation_steps, rows, micro, rows / micro);
  train.gradient_accumulation_steps = rows / micro;
}

/// With stages, gradient_accumulation_steps is that of the largest one.
void derive_largest_stage(const Object& document, const std::string& origin, Recipe& recipe) {
  const auto& stages = recipe.schedule.accumulation_stages;
  if (!stages || stages->empty()) return;
  int64_t largest = 0;
  for (const auto& stage : *stages) largest = std::max(largest, stage.steps);
  auto& train = recipe.train;
  if (train.global_batch_size)
    throw usage_error(
        "{}: /schedule/accumulation_stages: found beside /train/global_batch_size {}, expected only one "
        "of the two",
        origin, *train.global_batch_size);
  if (find_setting(document, "train", "gradient_accumulation_steps") != nullptr &&
      train.gradient_accumulation_steps != largest)
    throw usage_error(
        "{}: /schedule/accumulation_stages: found beside /train/gradient_accumulation_steps {}, expected only one of "
        "the two",
        origin, train.gradient_accumulation_steps);
  train.gradient_accumulation_steps = largest;
}

void warn_of_unused(const Object& document, const std::string& origin, Command command) {
  std::string names;
  for (const auto& name : unused_settings(document, command, write_fields(default_recipe(command))))
    names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) log_warning("{}: {} does not use {}", origin, command_name(command), names);
}

/// What the files and --set name, without defaults.
Object merged_layers(const fs::path& file, const std::vector<std::string>& sets) {
  const auto hardware_dirs = default_hardware_dirs(file);
  Object document;
  if (!file.empty())
    for (const auto& layer : read_file_layers(file, hardware_dirs)) merge_layer(document, layer);
  for (const auto& layer : read_set_layers(sets, hardware_dirs)) merge_layer(document, layer);
  return document;
}

void collect_names(const Object& object, const std::string& pointer, std::set<std::string>& names) {
  for (const auto& [key, value] : object) {
    names.insert(pointer + "/" + key);
    if (value.object() != nullptr) collect_names(*value.object(), pointer + "/" + key, names);
  }
}

}  // namespace

Recipe default_recipe(Command command) {
  Recipe recipe;
  if (command == Command::kPretrain) {
    recipe.optimizer.learning_rate = 1e-3;
    recipe.data.group_by_modality_length = false;
  }
  if (command == Command::kLoraFinetune) recipe.lora.emplace();
  return recipe;
}

Command guess_command(const fs::path& file, const std::vector<std::string>& sets) {
  const auto document = merged_layers(file, sets);
  const Value* lora = document.find("lora");
  if (lora != nullptr && lora->object() != nullptr) return Command::kLoraFinetune;
  return find_setting(document, "data", "train") != nullptr ? Command::kPretrain : Command::kInfer;
}

std::set<std::string> named_settings(const fs::path& file, const std::vector<std::string>& sets) {
  std::set<std::string> names;
  collect_names(merged_layers(file, sets), "", names);
  return names;
}

Recipe load_recipe(const fs::path& file, Command command, const std::vector<std::string>& sets,
                   const LoadOptions& options) {
  auto hardware_dirs = default_hardware_dirs(file);
  hardware_dirs.insert(hardware_dirs.end(), options.hardware_dirs.begin(), options.hardware_dirs.end());
  std::vector<Layer> layers;
  if (!file.empty()) layers = read_file_layers(file, hardware_dirs);
  const auto set_layers = read_set_layers(sets, hardware_dirs);
  check_set_alternatives(set_layers);
  layers.insert(layers.end(), set_layers.begin(), set_layers.end());

  const std::string origin = file.empty() ? "the command line" : file.string();
  Object document;
  document["hardware"] = read_hardware("cpu", hardware_dirs, origin);
  for (const auto& layer : layers) {
    Recipe scratch = default_recipe(command);  // each layer alone, so that errors name the file they are in
    read_fields(layer.content, layer.origin, command, scratch);
    merge_layer(document, layer);
  }
  Recipe recipe = implied_defaults(document, command);
  read_fields(document, origin, command, recipe);
  derive_accumulation(document, origin, recipe.train);
  derive_largest_stage(document, origin, recipe);
  warn_of_unused(document, origin, command);
  if (command == Command::kLoraFinetune && !recipe.lora)
    throw usage_error(
        "{}: /lora: found null, expected an object; full fine-tuning is pretrain with "
        "freeze.language_model false",
        origin);
  if (command != Command::kLoraFinetune) recipe.lora.reset();
  check_recipe(recipe, command, origin, options.require_inputs);
  return recipe;
}

}  // namespace vlmtune
