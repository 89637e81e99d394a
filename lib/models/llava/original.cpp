#include "lib/models/llava/original.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/models/llava/config.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// "LlavaMistralForCausalLM" -> "mistral": `model_type` may be "llava", which is transformers' own name too.
std::string language_model_type(const ConfigReader& config) {
  const auto names = config.texts("architectures");
  const auto name = names.empty() ? config.text("model_type", "") : names[0];
  for (const auto& [part, type] : {std::pair("Llama", "llama"),
                                   {"llama", "llama"},
                                   {"Mistral", "mistral"},
                                   {"mistral", "mistral"},
                                   {"Qwen", "qwen2"},
                                   {"qwen", "qwen2"}})
    if (name.find(part) != std::string::npos) return type;
  throw input_error("{}: found \"{}\", expected a LLaVA on Llama, Mistral or Qwen2", config.place("architectures"),
                    name);
}

}  // namespace

bool is_original_llava(const ConfigReader& config) {
  return config.has("mm_vision_tower") && !config.has("text_config");
}

std::optional<fs::path> original_llava_tower(const fs::path& dir) {
  if (!fs::exists(dir / "config.json")) return std::nullopt;
  const auto config = ConfigReader::open(dir / "config.json");
  if (!is_original_llava(config)) return std::nullopt;
  const auto folder = dir / config.text("mm_vision_tower", "");
  if (!fs::exists(folder / "config.json"))
    throw input_error("{}: {} is no folder with a config.json; name the tower's with model.vision_tower",
                      config.place("mm_vision_tower"), folder.string());
  return folder;
}

VlmConfig read_original_llava(const ConfigReader& config, const ConfigReader& tower, const VlmChoices& choices) {
  if (config.boolean("mm_use_im_start_end", false))
    throw input_error("{}: found true, expected false: pictures between tokens of their own are not supported",
                      config.place("mm_use_im_start_end"));
  VlmChoices known = choices;
  if (!known.projector_type) known.projector_type = config.text("mm_projector_type", "linear");
  if (!known.vision_select_layer) known.vision_select_layer = config.integer("mm_vision_select_layer", -2);
  auto c = compose_llava(config.with("model_type", language_model_type(config)), tower, known);
  auto v = std::make_shared<LlavaVisionConfig>(llava_vision(c));
  v->original_layout = true;
  const auto feature = config.text("mm_vision_select_feature", "patch");
  if (feature != "patch" && feature != "cls_patch")
    throw input_error("{}: found \"{}\", expected \"patch\" or \"cls_patch\"", config.place("mm_vision_select_feature"),
                      feature);
  if (v->tower->has_class_token()) v->keep_class_token = feature == "cls_patch";
  const auto aspect = config.text("image_aspect_ratio", "square");
  const auto merge = config.text("mm_patch_merge_type", "flat");
  if (aspect == "anyres" && merge == "spatial_unpad") {
    for (const auto& pair : config.integer_pairs("image_grid_pinpoints")) {
      if (pair.size() != 2)
        throw input_error("{}: expected [width, height] pairs", config.place("image_grid_pinpoints"));
      v->grid_pinpoints.push_back({.width = static_cast<int>(pair[0]), .height = static_cast<int>(pair[1])});
    }
    if (v->grid_pinpoints.empty()) throw input_error("{}: is missing", config.place("image_grid_pinpoints"));
  } else if ((aspect == "pad" || aspect == "square") && merge == "flat") {
    v->pads_pictures = aspect == "pad";
  } else {
    throw input_error(
        "{}: found \"{}\" with mm_patch_merge_type \"{}\", expected pad or square with flat, or anyres with "
        "spatial_unpad",
        config.place("image_aspect_ratio"), aspect, merge);
  }
  c.vision = v;
  return c;
}

}  // namespace vlmtune
