#include "lib/models/llava/config.h"

#include <algorithm>
#include <charconv>

#include "lib/base/errors.h"
#include "lib/image/anyres.h"
#include "lib/models/config_reader.h"
#include "lib/models/llava/vision.h"

namespace vlmtune {
namespace {

/// Python's indexing into the tower's hidden states: -1 is the last one.
int64_t resolve_state(int64_t layer, int64_t last, const std::string& place) {
  const int64_t state = layer < 0 ? last + 1 + layer : layer;
  if (state < 0 || state > last)
    throw input_error("{}: layer {} does not exist, the tower has {} layers", place, layer, last);
  return state;
}

void read_features(const ConfigReader& config, LlavaVisionConfig& c, int64_t usual_layer, const char* usual_strategy) {
  auto layers = config.is_array("vision_feature_layer")
                    ? config.integers("vision_feature_layer")
                    : std::vector<int64_t>{config.integer("vision_feature_layer", usual_layer)};
  if (layers.empty()) throw input_error("{}: names no layer", config.place("vision_feature_layer"));
  for (const int64_t layer : layers)
    c.feature_states.push_back(resolve_state(layer, c.tower->last_state(), config.place("vision_feature_layer")));
  for (const int64_t state : c.feature_states)
    if (c.tower->grid_side(state) != c.grid_side())
      throw input_error("{}: found [{}], expected layers whose features make one grid",
                        config.place("vision_feature_layer"), fmt::join(layers, ", "));
  const auto strategy = config.text("vision_feature_select_strategy", usual_strategy);
  if (strategy != "default" && strategy != "full")
    throw input_error("{}: found \"{}\", expected \"default\" or \"full\"",
                      config.place("vision_feature_select_strategy"), strategy);
  c.keep_class_token = strategy == "full";
}

void read_grid(const ConfigReader& config, LlavaVisionConfig& c) {
  const int64_t patches = c.grid_side() * c.grid_side();
  if (c.features_per_tile() != patches)
    throw input_error("{}: leaves {} features of a tile with {} patches, which make no grid",
                      config.place("vision_feature_select_strategy"), c.features_per_tile(), patches);
  for (const auto& pair : config.integer_pairs("image_grid_pinpoints")) {
    if (pair.size() != 2) throw input_error("{}: expected [height, width] pairs", config.place("image_grid_pinpoints"));
    c.grid_pinpoints.push_back({.width = static_cast<int>(pair[1]), .height = static_cast<int>(pair[0])});
  }
  if (c.grid_pinpoints.empty() && c.is_onevision()) c.grid_pinpoints = onevision_pinpoints();
  if (c.grid_pinpoints.empty()) c.grid_pinpoints = {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
}

/// "anyres_max_9" -> 9.
int read_max_tiles(const ConfigReader& config) {
  const auto aspect = config.text("vision_aspect_ratio", "anyres_max_9");
  constexpr std::string_view kPrefix = "anyres_max_";
  int tiles = 0;
  if (aspect.starts_with(kPrefix))
    std::from_chars(aspect.data() + kPrefix.size(), aspect.data() + aspect.size(), tiles);
  if (tiles < 1 || tiles > 1000)
    throw input_error("{}: found \"{}\", expected anyres_max_N", config.place("vision_aspect_ratio"), aspect);
  return tiles;
}

}  // namespace

VlmConfig read_llava(const ConfigReader& config, const VlmChoices& choices) {
  const auto type = config.text("model_type", "");
  const bool onevision = type == "llava_onevision", next = type == "llava_next" || onevision;
  VlmConfig c;
  c.text = read_decoder_config(config.object("text_config"));
  c.text.tie_word_embeddings = config.boolean("tie_word_embeddings", false) || (!next && c.text.tie_word_embeddings);
  c.image_token_id = config.integer("image_token_index", config.integer("image_token_id", onevision ? 151646 : 32000));
  if (onevision) c.video_token_id = config.integer("video_token_index", config.integer("video_token_id", 151647));
  auto v = std::make_shared<LlavaVisionConfig>();
  v->tower = read_tower_config(config.object("vision_config"));
  v->text_hidden_size = c.text.hidden_size;
  read_features(config, *v, onevision ? -1 : -2, onevision ? "full" : "default");
  if (onevision) v->max_tiles = read_max_tiles(config);
  v->projector.num_linears = parse_projector_type(config.text("mm_projector_type", "mlp2x_gelu"));
  v->projector.width = config.integer("projector_width", c.text.hidden_size);
  v->projector.bias = config.boolean("multimodal_projector_bias", true);
  v->projector.activation =
      parse_activation(config.text("projector_hidden_act", "gelu"), config.place("projector_hidden_act"));
  if (next) read_grid(config, *v);
  if (choices.vision_select_layer)
    v->feature_states = {
        resolve_state(*choices.vision_select_layer, v->tower->last_state(), "/model/vision_select_layer")};
  c.vision = v;
  return c;
}

VlmConfig compose_llava(const ConfigReader& language_model, const ConfigReader& tower, const VlmChoices& choices,
                        std::optional<int64_t> side) {
  VlmConfig c;
  c.text = read_decoder_config(language_model);
  auto v = std::make_shared<LlavaVisionConfig>();
  v->tower = read_tower_config(tower, side);
  v->text_hidden_size = c.text.hidden_size;
  v->feature_states = {resolve_state(choices.vision_select_layer.value_or(v->tower->usual_state()),
                                     v->tower->last_state(), "/model/vision_select_layer")};
  v->keep_class_token = !v->tower->has_class_token();  // none to drop
  v->projector.num_linears = parse_projector_type(choices.projector_type.value_or("mlp2x_gelu"));
  v->original_layout = choices.original_layout;
  v->projector.width = choices.projector_width.value_or(c.text.hidden_size);
  if (choices.projector_width && v->projector.num_linears == 1)
    throw usage_error("/model/projector_width: found {}, expected null: a linear projector has nothing between layers",
                      *choices.projector_width);
  if (choices.projector_width && choices.original_layout)
    throw usage_error(
        "/model/projector_width: found {}, expected null with output.layout llava, which knows no such key",
        *choices.projector_width);
  c.vision = v;
  return c;
}

const LlavaVisionConfig& llava_vision(const VlmConfig& config) {
  const auto* llava = dynamic_cast<const LlavaVisionConfig*>(config.vision.get());
  VLMTUNE_CHECK(llava != nullptr, "{} is no LLaVA", config.model_type);
  return *llava;
}

bool in_original_layout(const VlmConfig& config) {
  const auto* llava = dynamic_cast<const LlavaVisionConfig*>(config.vision.get());
  return llava != nullptr && llava->original_layout;
}

int64_t parse_projector_type(const std::string& name) {
  if (name == "linear") return 1;
  if (name.size() >= 9 && name.starts_with("mlp") && name.ends_with("x_gelu") && name.size() == 10 && name[3] >= '1' &&
      name[3] <= '9')
    return name[3] - '0';
  throw usage_error("/model/mm_projector_type: found \"{}\", expected linear or mlp2x_gelu", name);
}

int64_t LlavaVisionConfig::last_state() const {
  return *std::max_element(feature_states.begin(), feature_states.end());
}

int64_t LlavaVisionConfig::feature_size() const {
  int64_t size = 0;
  for (const int64_t state : feature_states) size += tower->width(state);
  return size;
}

int64_t LlavaVisionConfig::features_per_tile() const {
  return grid_side() * grid_side() + (tower->has_class_token() ? 1 : 0) - (keep_class_token ? 0 : 1);
}

int64_t LlavaVisionConfig::image_tokens(const PictureShape& picture) const {
  if (!is_next()) return features_per_tile();
  const auto side = static_cast<int>(grid_side());
  if (!is_onevision())
    return llava_next_image_tokens(picture.original, grid_pinpoints, static_cast<int>(tower->image_size), side);
  if (picture.is_video()) return picture.tiles * frame_side() * frame_side() + 1;
  if (picture.tiles == 1) return int64_t{side} * side + 1;
  const auto layout = anyres_layout(picture.original, grid_pinpoints, static_cast<int>(tower->image_size), side);
  const auto kept = limit_features({layout.width, layout.height}, side, max_tiles);
  return int64_t{side} * side + int64_t{kept.height} * (int64_t{kept.width} + 1);
}

std::vector<int64_t> LlavaVisionConfig::tower_shape(const PictureShape& picture) const {
  return {picture.tiles, features_per_tile(), feature_size()};
}

std::string LlavaVisionConfig::describe_tower() const {
  return fmt::format("{}; states {}, class token {}", tower->describe(), fmt::join(feature_states, " "),
                     keep_class_token);
}

ImageProcessor LlavaVisionConfig::default_processor() const {
  ImageProcessor p;
  p.shortest_edge = p.crop_width = p.crop_height = static_cast<int>(tower->image_size);
  adapt(p, "");
  return p;
}

void LlavaVisionConfig::adapt(ImageProcessor& p, const std::string& place) const {
  if (is_next()) {
    p.aspect_ratio = AspectRatio::kAnyres;
    p.grid_pinpoints = grid_pinpoints;
    p.one_tile_in_company = is_onevision();
  }
  if (pads_pictures) p.aspect_ratio = AspectRatio::kPad;
  const int side = static_cast<int>(tower->image_size);
  if (p.aspect_ratio == AspectRatio::kDynamic || p.tile_size() != ImageSize{side, side})
    throw input_error("{}: makes pictures of {} x {}, the vision tower takes {} x {}", place, p.tile_size().width,
                      p.tile_size().height, side, side);
}

std::vector<std::string> LlavaVisionConfig::projector_modules() const {
  std::vector<std::string> modules{"multi_modal_projector"};
  // PEFT holds modules, and this tensor lies in none: only LLaVA's own layout has a place for it beside LoRA.
  if (original_layout && is_next()) modules.push_back("image_newline");
  return modules;
}

void LlavaVisionConfig::adapt_video(ImageProcessor& p, const std::string& place) const {
  p.aspect_ratio = AspectRatio::kSquare;
  p.one_tile_in_company = false;
  const int side = static_cast<int>(tower->image_size);
  if (p.tile_size() != ImageSize{side, side})
    throw input_error("{}: makes frames of {} x {}, the vision tower takes {} x {}", place, p.tile_size().width,
                      p.tile_size().height, side, side);
}

PictureText LlavaVisionConfig::picture_text() const {
  PictureText text;
  if (is_onevision()) text.video_token = "<video>";
  return text;
}

std::vector<std::string> LlavaVisionConfig::unused_modules() const {
  auto modules = tower->unused_modules(last_state());
  for (auto& module : modules) module = "model.vision_tower." + module;
  return modules;
}

std::span<const Rename> LlavaVisionConfig::published_names() const {
  // llava-hf's, which transformers has read since LLaVA was added to it.
  static constexpr Rename kNames[] = {{"model.language_model.", "language_model.model."},
                                      {"lm_head.", "language_model.lm_head."},
                                      {"model.vision_tower.", "vision_tower.vision_model."},
                                      {"model.multi_modal_projector.", "multi_modal_projector."},
                                      {"model.image_newline", "image_newline"}};
  static constexpr Rename kOtherTowers[] = {{"model.language_model.", "language_model.model."},
                                            {"lm_head.", "language_model.lm_head."},
                                            {"model.vision_tower.", "vision_tower."},
                                            {"model.multi_modal_projector.", "multi_modal_projector."}};
  static constexpr Rename kOriginal[] = {{"model.language_model.", "model."},
                                         {"model.vision_tower.", "model.vision_tower.vision_tower.vision_model."},
                                         {"model.multi_modal_projector.linear_1.", "model.mm_projector.0."},
                                         {"model.multi_modal_projector.linear_2.", "model.mm_projector.2."},
                                         {"model.multi_modal_projector.linear_3.", "model.mm_projector.4."}};
  static constexpr Rename kOriginalLinear[] = {{"model.language_model.", "model."},
                                               {"model.vision_tower.", "model.vision_tower.vision_tower.vision_model."},
                                               {"model.multi_modal_projector.linear_1.", "model.mm_projector."}};
  if (original_layout) return projector.num_linears == 1 ? std::span<const Rename>(kOriginalLinear) : kOriginal;
  if (!tower->has_vision_model()) return kOtherTowers;
  return kNames;
}

std::unique_ptr<Vision> LlavaVisionConfig::build(VlmParts parts) const {
  return std::make_unique<LlavaVision>(*this, parts);
}

}  // namespace vlmtune
