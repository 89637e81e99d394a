// LoRA adapters in PEFT's format: which layers they sit on, reading, writing, merging.
// Format: adapter_config.json and adapter_model.safetensors of https://github.com/huggingface/peft.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/models/vlm/model.h"

namespace vlmtune {

/// PEFT's `target_modules`: names or endings of names, or one regular expression for the whole name.
struct ModulePattern {
  std::vector<std::string> names;
  std::optional<std::string> regex;
  bool empty() const { return names.empty() && !regex; }
  bool matches(const std::string& module) const;
};

/// PEFT's `rank_pattern` and `alpha_pattern`: the value of the first expression that matches the end of a module's name.
template <typename T>
using PatternTable = std::vector<std::pair<std::string, T>>;

/// Whether a module or a tensor lies in one of PEFT's `modules_to_save`, which are names or endings of names of modules.
bool lies_in(const std::string& name, const std::vector<std::string>& modules);

struct AdapterConfig {
  int64_t r = 8;
  double alpha = 16, dropout = 0;
  bool use_rslora = false;
  ModulePattern target_modules, exclude_modules;
  std::vector<std::string> modules_to_save;
  PatternTable<int64_t> rank_pattern;
  PatternTable<double> alpha_pattern;
  std::vector<int64_t> layers_to_transform;
  std::string base_model;        ///< base_model_name_or_path
  bool original_layout = false;  ///< saved modules lie in non_lora_trainables.bin, as LLaVA's own trainer leaves them

  int64_t rank_of(const std::string& module) const;
  /// alpha / r of the module, or alpha / sqrt(r) with rsLoRA (Kalajdzievski 2023, arXiv 2312.03732).
  double scale_of(const std::string& module) const;
  bool targets(const std::string& module) const;
  bool saves(const std::string& name) const;
};

/// Errors: input_error for what is not supported (DoRA, other kinds of adapters, trained biases).
AdapterConfig read_adapter_config(const std::filesystem::path& dir);

/// Errors: io_error.
void write_adapter_config(const AdapterConfig& config, const std::filesystem::path& dir);

/// New LoRA tensors on every targeted layer: A from U(-1/sqrt(in), 1/sqrt(in)) as PEFT's kaiming_uniform(sqrt 5), B zero.
/// Returns the names of the layers. Errors: usage_error when nothing matches.
std::vector<std::string> attach_lora(VlmModel& model, const AdapterConfig& config, int64_t seed);

/// Reads a PEFT folder into the model: LoRA tensors, and whole modules over the model's own ones.
/// Errors: input_error naming the tensor that is missing, unknown or of another shape.
AdapterConfig load_adapter(VlmModel& model, const std::filesystem::path& dir);

/// Writes `dir` so that the peft library restores LoRA and saved modules on the base model. Errors: io_error.
void save_adapter(VlmModel& model, const AdapterConfig& config, const std::filesystem::path& dir);

/// Adds scale * B A to each adapted weight, in fp32, and drops the adapters. Each weight becomes a copy of its own type;
/// quantised ones become whole, of the given type.
void merge_adapter(VlmModel& model, torch::ScalarType dequantized_type = torch::kFloat);

}  // namespace vlmtune
