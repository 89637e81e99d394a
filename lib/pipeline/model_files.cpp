#include "lib/pipeline/model_files.h"

#include "lib/models/adapter.h"
#include "lib/models/config_reader.h"
#include "lib/models/llava/original.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// The adapter that the model begins with.
std::optional<fs::path> adapter_of(const Recipe& recipe) {
  if (recipe.model.adapter) return *recipe.model.adapter;
  if (recipe.lora && recipe.lora->init_from) return *recipe.lora->init_from;
  return std::nullopt;
}

}  // namespace

fs::path described_by(const Recipe& recipe) {
  if (const auto adapter = adapter_of(recipe); adapter && read_adapter_config(*adapter).original_layout)
    if (const auto file = *adapter / "config.json"; fs::exists(file) && is_original_llava(ConfigReader::open(file)))
      return *adapter;
  return recipe.model.path;
}

std::optional<fs::path> tower_of(const Recipe& recipe) {
  if (recipe.model.vision_tower) return *recipe.model.vision_tower;
  return original_llava_tower(described_by(recipe));
}

bool is_whole(const Recipe& recipe) {
  return !tower_of(recipe) || is_original_llava(ConfigReader::open(fs::path(recipe.model.path) / "config.json"));
}

std::optional<Precision> declared_precision(const fs::path& model_dir) {
  const auto config = ConfigReader::open(model_dir / "config.json");
  const auto type = [](const ConfigReader& c) { return c.text("dtype", c.text("torch_dtype", "")); };
  auto name = type(config);
  if (name.empty()) name = type(config.object("text_config"));
  if (name == "float32") return Precision::kFp32;
  if (name == "bfloat16") return Precision::kBf16;
  if (name == "float16") return Precision::kFp16;
  return std::nullopt;
}

VlmConfig model_config(const Recipe& recipe) {
  return read_vlm_config(described_by(recipe), tower_of(recipe),
                         {.projector_type = recipe.model.mm_projector_type,
                          .vision_select_layer = recipe.model.vision_select_layer,
                          .projector_width = recipe.model.projector_width,
                          .original_layout = recipe.output.layout == Layout::kLlava,
                          .similarity_head = recipe.model.similarity_head});
}

}  // namespace vlmtune
