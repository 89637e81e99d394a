// Which folders hold the model that a recipe names.
#pragma once
#include <filesystem>
#include <optional>

#include "lib/models/vlm/config.h"
#include "lib/recipe/recipe.h"

namespace vlmtune {

/// The type that config.json says its weights have; nothing where it does not say. Errors: input_error.
std::optional<Precision> declared_precision(const std::filesystem::path& model_dir);

/// The folder whose config.json describes the model: model.path, or a LoRA folder of LLaVA's own that is put on it.
std::filesystem::path described_by(const Recipe& recipe);

/// The tower's folder when it stands apart. Errors: input_error.
std::optional<std::filesystem::path> tower_of(const Recipe& recipe);

/// Whether the model's folder holds more than a language model although the tower stands apart.
bool is_whole(const Recipe& recipe);

/// The model's config.json, together with its tower's. Errors: input_error.
VlmConfig model_config(const Recipe& recipe);

}  // namespace vlmtune
