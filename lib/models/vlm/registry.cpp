// The families of models, by the model_type of their config.json.
#include <algorithm>

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/models/first_qwen_vl/config.h"
#include "lib/models/llava/config.h"
#include "lib/models/llava/original.h"
#include "lib/models/qwen_vl/config.h"
#include "lib/models/vlm/config.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

struct Family {
  std::string_view model_type;
  VlmConfig (*read)(const ConfigReader& config, const VlmChoices& choices);
};

constexpr Family kFamilies[] = {
    {"llava", read_llava},        {"llava_next", read_llava},   {"llava_onevision", read_llava},
    {"qwen2_vl", read_qwen_vl},   {"qwen2_5_vl", read_qwen_vl}, {"qwen3_vl", read_qwen_vl},
    {"qwen", read_first_qwen_vl},
};

/// Of the pictures that a tower's folder makes, if it says so.
std::optional<int64_t> picture_side(const fs::path& tower) {
  if (!fs::exists(tower / "preprocessor_config.json")) return std::nullopt;
  return ImageProcessor::load(tower).tile_size().height;
}

}  // namespace

bool VlmConfig::is_unused(const std::string& name) const {
  if (is_ignored_tensor(name) || (!similarity_head && name.find("similarity_head.") != std::string::npos)) return true;
  const auto modules = vision ? vision->unused_modules() : std::vector<std::string>();
  return std::any_of(modules.begin(), modules.end(),
                     [&](const auto& module) { return name.starts_with(module + "."); });
}

std::string VlmConfig::published_name(const std::string& name) const {
  if (vision)
    for (const auto& rename : vision->published_names())
      if (name.starts_with(rename.from)) return std::string(rename.to) + name.substr(rename.from.size());
  return name;
}

VlmConfig read_vlm_config(const fs::path& dir, const std::optional<fs::path>& vision_tower, const VlmChoices& choices) {
  const auto config = ConfigReader::open(dir / "config.json");
  const auto type = config.text("model_type", "");
  const auto family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family& known) { return known.model_type == type; });
  if (choices.projector_width && !vision_tower)
    throw usage_error("/model/projector_width: found {}, expected null: {} gets no new projector",
                      *choices.projector_width, dir.string());
  VlmConfig c;
  if (is_original_llava(config)) {
    const auto tower = vision_tower ? *vision_tower : original_llava_tower(dir).value();
    c = read_original_llava(config, ConfigReader::open(tower / "config.json"), choices);
  } else if (family != std::end(kFamilies)) {
    if (vision_tower)
      throw usage_error("/model/vision_tower: {} already has a vision tower; swapping it is not available yet",
                        dir.string());
    if (choices.original_layout)
      throw usage_error("/output/layout: found \"llava\", but {} is in the layout of transformers and stays in it",
                        dir.string());
    c = family->read(config, choices);
  } else if (vision_tower) {
    c = compose_llava(config, ConfigReader::open(*vision_tower / "config.json"), choices, picture_side(*vision_tower));
  } else {
    c.text = read_decoder_config(config);
  }
  c.model_type = type;
  c.similarity_head = choices.similarity_head && c.vision;
  return c;
}

}  // namespace vlmtune
