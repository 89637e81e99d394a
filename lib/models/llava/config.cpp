#include "lib/models/llava/config.h"

#include "lib/base/errors.h"
#include "lib/image/anyres.h"
#include "lib/models/config_reader.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// Python's indexing into the tower's hidden states: -1 is the output of the last block.
int64_t resolve_state(int64_t layer, int64_t num_layers, const std::string& place) {
  const int64_t state = layer < 0 ? num_layers + 1 + layer : layer;
  if (state < 0 || state > num_layers)
    throw input_error("{}: layer {} does not exist, the tower has {} layers", place, layer, num_layers);
  return state;
}

void read_features(const ConfigReader& config, LlavaConfig& c) {
  auto layers = config.is_array("vision_feature_layer")
                    ? config.integers("vision_feature_layer")
                    : std::vector<int64_t>{config.integer("vision_feature_layer", -2)};
  if (layers.empty()) throw input_error("{}: names no layer", config.place("vision_feature_layer"));
  for (const int64_t layer : layers)
    c.feature_states.push_back(resolve_state(layer, c.vision->num_hidden_layers, config.place("vision_feature_layer")));
  const auto strategy = config.text("vision_feature_select_strategy", "default");
  if (strategy != "default" && strategy != "full")
    throw input_error("{}: found \"{}\", expected \"default\" or \"full\"",
                      config.place("vision_feature_select_strategy"), strategy);
  c.keep_class_token = strategy == "full";
}

LlavaConfig read_whole(const ConfigReader& config) {
  LlavaConfig c;
  c.model_type = config.text("model_type", "");
  const auto text = config.object("text_config");
  c.text = read_decoder_config(text);
  const bool next = c.is_next();
  c.text.tie_word_embeddings = config.boolean("tie_word_embeddings", false) || (!next && c.text.tie_word_embeddings);
  c.vision = read_vit_config(config.object("vision_config"));
  read_features(config, c);
  c.projector.num_linears = parse_projector_type(config.text("mm_projector_type", "mlp2x_gelu"));
  c.projector.bias = config.boolean("multimodal_projector_bias", true);
  c.projector.activation =
      parse_activation(config.text("projector_hidden_act", "gelu"), config.place("projector_hidden_act"));
  c.image_token_id = config.integer("image_token_index", config.integer("image_token_id", 32000));
  if (next) {
    const int64_t patches = c.vision->patches_per_side() * c.vision->patches_per_side();
    if (c.features_per_tile() != patches)
      throw input_error("{}: leaves {} features of a tile with {} patches, which make no grid",
                        config.place("vision_feature_select_strategy"), c.features_per_tile(), patches);
    for (const auto& pair : config.integer_pairs("image_grid_pinpoints")) {
      if (pair.size() != 2)
        throw input_error("{}: expected [height, width] pairs", config.place("image_grid_pinpoints"));
      c.grid_pinpoints.push_back({.width = static_cast<int>(pair[1]), .height = static_cast<int>(pair[0])});
    }
    if (c.grid_pinpoints.empty()) c.grid_pinpoints = {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
  }
  return c;
}

}  // namespace

int64_t parse_projector_type(const std::string& name) {
  if (name == "linear") return 1;
  if (name.size() >= 9 && name.starts_with("mlp") && name.ends_with("x_gelu") && name.size() == 10 && name[3] >= '1' &&
      name[3] <= '9')
    return name[3] - '0';
  throw usage_error("/model/mm_projector_type: found \"{}\", expected linear or mlp2x_gelu", name);
}

int64_t LlavaConfig::num_vision_layers() const {
  return feature_states.empty() ? 0 : *std::max_element(feature_states.begin(), feature_states.end());
}

int64_t LlavaConfig::features_per_tile() const {
  const int64_t patches = vision->patches_per_side() * vision->patches_per_side();
  if (vision->siglip) return keep_class_token ? patches : patches - 1;
  return keep_class_token ? patches + 1 : patches;
}

int64_t LlavaConfig::image_tokens(ImageSize original) const {
  if (!is_next()) return features_per_tile();
  return llava_next_image_tokens(original, grid_pinpoints, static_cast<int>(vision->image_size),
                                 static_cast<int>(vision->patches_per_side()));
}

LlavaConfig read_llava_config(const fs::path& dir, const std::optional<fs::path>& vision_tower,
                              const LlavaChoices& choices) {
  const auto config = ConfigReader::open(dir / "config.json");
  const auto type = config.text("model_type", "");
  const bool whole = type == "llava" || type == "llava_next";
  if (whole) {
    if (vision_tower)
      throw usage_error("/model/vision_tower: {} already has a vision tower; swapping it is not available yet",
                        dir.string());
    auto c = read_whole(config);
    if (choices.vision_select_layer)
      c.feature_states = {
          resolve_state(*choices.vision_select_layer, c.vision->num_hidden_layers, "/model/vision_select_layer")};
    return c;
  }
  LlavaConfig c;
  c.model_type = type;
  c.text = read_decoder_config(config);
  if (!vision_tower) return c;
  c.model_type = "llava";
  c.vision = read_vit_config(ConfigReader::open(*vision_tower / "config.json"));
  c.feature_states = {resolve_state(choices.vision_select_layer.value_or(-2), c.vision->num_hidden_layers,
                                    "/model/vision_select_layer")};
  c.keep_class_token = c.vision->siglip;  // SigLIP has no class token to drop
  c.projector.num_linears = parse_projector_type(choices.projector_type.value_or("mlp2x_gelu"));
  return c;
}

}  // namespace vlmtune
