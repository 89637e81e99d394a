// Defaults are those of transformers' Qwen2VLVisionConfig, Qwen2_5_VLVisionConfig and Qwen3VLVisionConfig.
#include "lib/models/qwen_vl/config.h"

#include <algorithm>
#include <cmath>

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/models/qwen_vl/vision.h"

namespace vlmtune {
namespace {

constexpr QwenVlNames kNames2{"fc", "ln_q", {"mlp.0", "mlp.2"}};
constexpr QwenVlNames kNames3{"linear_fc", "norm", {"linear_fc1", "linear_fc2"}};
constexpr Rename kPublished2[] = {{"model.language_model.", "model."}, {"model.visual.", "visual."}};

void read_qwen2(const ConfigReader& config, QwenVlVisionConfig& c) {
  c.names = &kNames2;
  c.published = kPublished2;
  c.depth = config.integer("depth", 32);
  c.hidden_size = config.integer("embed_dim", 1280);
  c.out_hidden_size = config.integer("hidden_size", 3584);
  c.intermediate_size = static_cast<int64_t>(config.number("mlp_ratio", 4) * static_cast<double>(c.hidden_size));
}

void read_qwen2_5(const ConfigReader& config, QwenVlVisionConfig& c) {
  c.names = &kNames2;
  c.published = kPublished2;
  c.depth = config.integer("depth", 32);
  c.hidden_size = config.integer("hidden_size", 3584);
  c.out_hidden_size = config.integer("out_hidden_size", 3584);
  c.intermediate_size = config.integer("intermediate_size", 3420);
  c.gated = true;
  c.window_size = config.integer("window_size", 112);
  c.positions_per_second = config.integer("tokens_per_second", 4);
  c.full_attention_blocks = config.has("fullatt_block_indexes") ? config.integers("fullatt_block_indexes")
                                                                : std::vector<int64_t>{7, 15, 23, 31};
  if (c.window_size < c.patch_size * c.merge_size)
    throw input_error("{}: found {}, expected at least the {} pixels of a token", config.place("window_size"),
                      c.window_size, c.patch_size * c.merge_size);
}

void read_qwen3(const ConfigReader& config, QwenVlVisionConfig& c) {
  c.names = &kNames3;
  c.slot_per_time = true;
  c.depth = config.integer("depth", 27);
  c.hidden_size = config.integer("hidden_size", 1152);
  c.out_hidden_size = config.integer("out_hidden_size", 3584);
  c.intermediate_size = config.integer("intermediate_size", 4304);
  c.patch_bias = true;
  const int64_t positions = config.integer("num_position_embeddings", 2304);
  c.table_side = static_cast<int64_t>(std::sqrt(static_cast<double>(positions)));
  if (c.table_side < 1 || c.table_side * c.table_side != positions)
    throw input_error("{}: found {}, expected the square of a number", config.place("num_position_embeddings"),
                      positions);
  c.deepstack_blocks = config.has("deepstack_visual_indexes") ? config.integers("deepstack_visual_indexes")
                                                              : std::vector<int64_t>{8, 16, 24};
  if (!std::is_sorted(c.deepstack_blocks.begin(), c.deepstack_blocks.end()) ||
      (!c.deepstack_blocks.empty() && (c.deepstack_blocks.front() < 0 || c.deepstack_blocks.back() >= c.depth)))
    throw input_error("{}: found [{}], expected ascending numbers of the {} blocks",
                      config.place("deepstack_visual_indexes"), fmt::join(c.deepstack_blocks, ", "), c.depth);
}

struct Kind {
  std::string_view model_type;
  const char* activation;
  int64_t patch_size;
  BoxStyle boxes;
  void (*read)(const ConfigReader& config, QwenVlVisionConfig& c);
};
constexpr Kind kKinds[] = {{"qwen2_vl", "quick_gelu", 14, BoxStyle::kQwen2Vl, read_qwen2},
                           {"qwen2_5_vl", "silu", 14, BoxStyle::kQwen25Vl, read_qwen2_5},
                           {"qwen3_vl", "gelu_pytorch_tanh", 16, BoxStyle::kQwen3Vl, read_qwen3}};

std::shared_ptr<QwenVlVisionConfig> read_vision(const ConfigReader& config, const Kind& kind) {
  auto c = std::make_shared<QwenVlVisionConfig>();
  c->num_heads = config.integer("num_heads", 16);
  c->in_channels = config.integer("in_channels", config.integer("in_chans", 3));
  c->patch_size = config.integer("patch_size", kind.patch_size);
  c->temporal_patch_size = config.integer("temporal_patch_size", 2);
  c->merge_size = config.integer("spatial_merge_size", 2);
  c->activation = parse_activation(config.text("hidden_act", kind.activation), config.place("hidden_act"));
  c->rope_theta = config.object("rope_parameters").number("rope_theta", 10000);
  config.check_sizes({{"num_heads", c->num_heads},
                      {"patch_size", c->patch_size},
                      {"temporal_patch_size", c->temporal_patch_size},
                      {"spatial_merge_size", c->merge_size}});
  c->boxes = kind.boxes;
  kind.read(config, *c);
  config.check_sizes(
      {{"depth", c->depth}, {"hidden_size", c->hidden_size}, {"intermediate_size", c->intermediate_size}});
  if (c->in_channels != 3)
    throw input_error("{}: found {}, expected 3 channels", config.place("in_channels"), c->in_channels);
  if (c->hidden_size % (4 * c->num_heads) != 0)
    throw input_error("{}: found {}, expected heads of a multiple of 4 channels in {}", config.place("num_heads"),
                      c->num_heads, c->hidden_size);
  return c;
}

}  // namespace

VlmConfig read_qwen_vl(const ConfigReader& config, const VlmChoices& choices) {
  const auto type = config.text("model_type", "");
  if (choices.vision_select_layer || choices.projector_type)
    throw usage_error("/model/{}: a {} model has its own tower and merger, expected null",
                      choices.vision_select_layer ? "vision_select_layer" : "mm_projector_type", type);
  VlmConfig c;
  const auto text = config.has("text_config") ? config.object("text_config") : config;  // older files are flat
  c.text = read_decoder_config(text, type);
  const bool tied = config.boolean("tie_word_embeddings", false);
  c.text.tie_word_embeddings = tied || (type != "qwen3_vl" && c.text.tie_word_embeddings);
  c.image_token_id = config.integer("image_token_id", 151655);
  c.video_token_id = config.integer("video_token_id", 151656);
  const auto vision_reader = config.object("vision_config");
  const auto kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& known) { return known.model_type == type; });
  const auto vision = read_vision(vision_reader, *kind);
  if (vision->out_hidden_size != c.text.hidden_size)
    throw input_error("{}: found {} channels for the language model, expected {}",
                      vision_reader.place(type == "qwen2_vl" ? "hidden_size" : "out_hidden_size"),
                      vision->out_hidden_size, c.text.hidden_size);
  c.vision = vision;
  return c;
}

ImageSize QwenVlVisionConfig::patch_grid(const PictureShape& picture) const {
  const int patch = static_cast<int>(patch_size);
  return {.width = picture.width / patch, .height = picture.height / patch};
}

int64_t QwenVlVisionConfig::times(const PictureShape& picture) const {
  return picture.is_video() ? picture.tiles / temporal_patch_size : 1;
}

std::optional<TokenGrid> QwenVlVisionConfig::token_grid(const PictureShape& picture) const {
  const auto patches = patch_grid(picture);
  TokenGrid grid{.time = times(picture), .height = patches.height / merge_size, .width = patches.width / merge_size};
  // Whole seconds, as transformers counts them.
  if (picture.is_video() && positions_per_second > 0)
    grid.time_step = positions_per_second *
                     static_cast<int64_t>(static_cast<double>(temporal_patch_size) / picture.frames_per_second);
  return grid;
}

int64_t QwenVlVisionConfig::image_tokens(const PictureShape& picture) const {
  const auto grid = *token_grid(picture);
  return grid.time * grid.height * grid.width;
}

std::vector<int64_t> QwenVlVisionConfig::tower_shape(const PictureShape& picture) const {
  return {image_tokens(picture) * patches_per_token() * num_states(), hidden_size};
}

std::string QwenVlVisionConfig::describe_tower() const {
  return fmt::format(
      "qwen vl hidden {} {} layers {} heads {} patch {} x {} merge {} activation {} theta {} gated {} window {} but {} "
      "table {} deepstack {}",
      hidden_size, intermediate_size, depth, num_heads, patch_size, temporal_patch_size, merge_size,
      static_cast<int>(activation), rope_theta, gated, window_size, fmt::join(full_attention_blocks, " "), table_side,
      fmt::join(deepstack_blocks, " "));
}

ImageProcessor QwenVlVisionConfig::default_processor() const {
  ImageProcessor p;
  p.aspect_ratio = AspectRatio::kDynamic;
  p.do_center_crop = false;
  p.patch_size = static_cast<int>(patch_size);
  p.merge_size = static_cast<int>(merge_size);
  return p;
}

void QwenVlVisionConfig::adapt(ImageProcessor& p, const std::string& place) const {
  if (p.aspect_ratio != AspectRatio::kDynamic)
    throw input_error("{}: has a {}, expected a Qwen2VLImageProcessor", place, p.type);
  if (p.patch_size != patch_size || p.merge_size != merge_size)
    throw input_error("{}: makes blocks of {} x {} patches of {} pixels, the vision tower takes {} x {} of {}", place,
                      p.merge_size, p.merge_size, p.patch_size, merge_size, merge_size, patch_size);
}

std::vector<std::string> QwenVlVisionConfig::tower_modules() const {
  std::vector<std::string> modules{"visual.patch_embed", "visual.pos_embed"};
  for (int64_t i = 0; i < depth; ++i) modules.push_back(fmt::format("visual.blocks.{}", i));
  return modules;
}

void QwenVlVisionConfig::adapt_video(ImageProcessor& p, const std::string& place) const {
  adapt(p, place);
  p.frames_per_patch = static_cast<int>(temporal_patch_size);
}

PictureText QwenVlVisionConfig::picture_text() const {
  return {"<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>", slot_per_time};
}

std::vector<std::string> QwenVlVisionConfig::projector_modules() const {
  std::vector<std::string> modules{"merger"};
  for (size_t i = 0; i < deepstack_blocks.size(); ++i) modules.push_back(fmt::format("deepstack_merger_list.{}", i));
  return modules;
}

std::unique_ptr<Vision> QwenVlVisionConfig::build(VlmParts parts) const {
  return std::make_unique<QwenVlVision>(*this, parts);
}

}  // namespace vlmtune
