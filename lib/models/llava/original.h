// Checkpoints in LLaVA's own layout (github.com/haotian-liu/LLaVA): the language model's keys stand at the top of config.json beside
// mm_* ones, and the tower's configuration in a folder of its own.
#pragma once
#include <filesystem>
#include <optional>

#include "lib/models/vlm/config.h"

namespace vlmtune {

class ConfigReader;

/// In a LoRA folder of LLaVA's trainer, what it trained beside LoRA.
inline constexpr const char* kNonLoraTrainables = "non_lora_trainables.bin";

bool is_original_llava(const ConfigReader& config);

/// The folder of the tower that `dir`'s config.json names, if it is one of that layout: a path seen from `dir`, as published files
/// have hub names there. Errors: input_error when there is no such folder.
std::optional<std::filesystem::path> original_llava_tower(const std::filesystem::path& dir);

/// `tower`: the tower's own config.json. Errors: input_error.
VlmConfig read_original_llava(const ConfigReader& config, const ConfigReader& tower, const VlmChoices& choices);

}  // namespace vlmtune
