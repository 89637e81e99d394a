// Defaults are those of configuration_qwen.py in the published repositories.
#include "lib/models/first_qwen_vl/config.h"

#include <cmath>

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/models/first_qwen_vl/vision.h"

namespace vlmtune {
namespace {

DecoderNames names_of_qwen() {
  return {.prefix = "transformer.",
          .embed_tokens = "wte",
          .layers = "h",
          .norm = "ln_f",
          .input_layernorm = "ln_1",
          .post_attention_layernorm = "ln_2",
          .self_attn = "attn",
          .o_proj = "c_proj",
          .fused_qkv = "c_attn",
          .mlp = {.gate = "w2", .up = "w1", .down = "c_proj"}};
}

DecoderConfig read_language_model(const ConfigReader& config) {
  DecoderConfig c;
  c.model_type = "qwen";
  c.names = names_of_qwen();
  c.vocab_size = config.integer("vocab_size", 151936);
  c.hidden_size = config.integer("hidden_size", 4096);
  c.intermediate_size = config.integer("intermediate_size", 22016) / 2;  // counts both branches
  c.num_hidden_layers = config.integer("num_hidden_layers", 32);
  c.num_attention_heads = c.num_key_value_heads = config.integer("num_attention_heads", 32);
  c.head_dim = config.integer("kv_channels", 128);
  config.check_sizes({{"vocab_size", c.vocab_size},
                      {"hidden_size", c.hidden_size},
                      {"intermediate_size", c.intermediate_size},
                      {"num_hidden_layers", c.num_hidden_layers},
                      {"num_attention_heads", c.num_attention_heads},
                      {"kv_channels", c.head_dim}});
  if (c.head_dim % 2 != 0)
    throw input_error("{}: found {}, expected an even size", config.place("kv_channels"), c.head_dim);
  c.max_position_embeddings = config.integer("max_position_embeddings", 8192);
  c.rms_norm_eps = config.number("layer_norm_epsilon", 1e-6);
  c.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  c.qkv_bias = true;
  c.layer_is_sliding.assign(static_cast<size_t>(c.num_hidden_layers), false);
  c.rope.head_dim = c.head_dim;
  c.rope.theta = config.number("rotary_emb_base", 10000);
  c.rope.max_position_embeddings = c.max_position_embeddings;
  const int64_t trained = config.integer("seq_length", c.max_position_embeddings);
  config.check_sizes({{"seq_length", trained}});
  c.rope.original_max_position_embeddings = trained;
  if (config.boolean("use_dynamic_ntk", true)) c.rope.type = "doubling";
  if (config.boolean("use_logn_attn", true)) c.query_log_base = trained;
  if (config.number("rotary_pct", 1) != 1)
    throw input_error("{}: found {}, expected 1: heads that are rotated in part are not supported",
                      config.place("rotary_pct"), config.number("rotary_pct", 1));
  if (!config.boolean("no_bias", true)) throw input_error("{}: found false, expected true", config.place("no_bias"));
  return c;
}

std::shared_ptr<FirstQwenVlVisionConfig> read_vision(const ConfigReader& config) {
  auto c = std::make_shared<FirstQwenVlVisionConfig>();
  auto& vit = c->vit;
  vit.bigg = true;
  vit.hidden_size = config.integer("width", 1664);
  vit.intermediate_size =
      static_cast<int64_t>(config.number("mlp_ratio", 4.9231) * static_cast<double>(vit.hidden_size));
  vit.num_hidden_layers = config.integer("layers", 48);
  vit.num_attention_heads = config.integer("heads", 16);
  vit.image_size = config.integer("image_size", 448);
  vit.patch_size = config.integer("patch_size", 14);
  vit.stored_side = 16;
  vit.layer_norm_eps = 1e-6;
  vit.activation = Activation::kGelu;
  c->hidden_size = config.integer("output_dim", 4096);
  c->num_queries = config.integer("n_queries", 256);
  const int64_t head_dim = config.integer("attn_pool_head_dim", 128);
  config.check_sizes({{"width", vit.hidden_size},
                      {"mlp_ratio", vit.intermediate_size},
                      {"layers", vit.num_hidden_layers},
                      {"heads", vit.num_attention_heads},
                      {"image_size", vit.image_size},
                      {"patch_size", vit.patch_size},
                      {"output_dim", c->hidden_size},
                      {"n_queries", c->num_queries},
                      {"attn_pool_head_dim", head_dim}});
  if (vit.hidden_size % vit.num_attention_heads != 0)
    throw input_error("{}: found {}, expected a divisor of width {}", config.place("heads"), vit.num_attention_heads,
                      vit.hidden_size);
  if (c->hidden_size % head_dim != 0)
    throw input_error("{}: found {}, expected a multiple of {}", config.place("output_dim"), c->hidden_size, head_dim);
  if (vit.patches_per_side() < 1)
    throw input_error("{}: found {}, expected at most the picture's {}", config.place("patch_size"), vit.patch_size,
                      vit.image_size);
  const auto side = std::lround(std::sqrt(static_cast<double>(c->num_queries)));
  if (side * side != c->num_queries)
    throw input_error("{}: found {}, expected the square of a number", config.place("n_queries"), c->num_queries);
  c->num_heads = c->hidden_size / head_dim;
  return c;
}

}  // namespace

VlmConfig read_first_qwen_vl(const ConfigReader& config, const VlmChoices& choices) {
  if (choices.vision_select_layer || choices.projector_type)
    throw usage_error("/model/{}: a qwen model has its own tower and resampler, expected null",
                      choices.vision_select_layer ? "vision_select_layer" : "mm_projector_type");
  VlmConfig c;
  c.text = read_language_model(config);
  if (!config.has("visual")) return c;
  const auto visual = config.object("visual");
  const auto vision = read_vision(visual);
  if (vision->hidden_size != c.text.hidden_size)
    throw input_error("{}: found {} channels for the language model, expected {}", visual.place("output_dim"),
                      vision->hidden_size, c.text.hidden_size);
  c.vision = vision;
  c.image_token_id = visual.integer("image_start_id", 151857) + 2;  // <img>, </img>, <imgpad>
  return c;
}

std::vector<int64_t> FirstQwenVlVisionConfig::tower_shape(const PictureShape&) const {
  return {1, vit.patches_per_side() * vit.patches_per_side(), vit.hidden_size};
}

std::string FirstQwenVlVisionConfig::describe_tower() const {
  return fmt::format("first qwen vl hidden {} {} layers {} heads {} image {} patch {}", vit.hidden_size,
                     vit.intermediate_size, vit.num_hidden_layers, vit.num_attention_heads, vit.image_size,
                     vit.patch_size);
}

ImageProcessor FirstQwenVlVisionConfig::default_processor() const {
  ImageProcessor p;
  p.size_height = p.size_width = static_cast<int>(vit.image_size);
  p.do_center_crop = false;
  return p;
}

void FirstQwenVlVisionConfig::adapt(ImageProcessor& p, const std::string& place) const {
  const int side = static_cast<int>(vit.image_size);
  if (p.aspect_ratio == AspectRatio::kDynamic || p.tile_size() != ImageSize{side, side})
    throw input_error("{}: makes pictures of {} x {}, the vision tower takes {} x {}", place, p.tile_size().width,
                      p.tile_size().height, side, side);
}

std::unique_ptr<Vision> FirstQwenVlVisionConfig::build(VlmParts parts) const {
  return std::make_unique<FirstQwenVlVision>(*this, parts);
}

}  // namespace vlmtune
