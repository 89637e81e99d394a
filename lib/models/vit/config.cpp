#include "lib/models/vit/config.h"

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"

namespace vlmtune {
namespace {

/// Dinov2Config's defaults.
VitConfig read_dinov2(const ConfigReader& config, std::optional<int64_t> side) {
  VitConfig c;
  c.dinov2 = true;
  c.hidden_size = config.integer("hidden_size", 768);
  c.intermediate_size = c.hidden_size * config.integer("mlp_ratio", 4);
  c.num_hidden_layers = config.integer("num_hidden_layers", 12);
  c.num_attention_heads = config.integer("num_attention_heads", 12);
  c.num_channels = config.integer("num_channels", 3);
  c.patch_size = config.integer("patch_size", 14);
  const int64_t stored = config.integer("image_size", 224);
  c.image_size = side.value_or(stored);
  c.layer_norm_eps = config.number("layer_norm_eps", 1e-6);
  c.activation = parse_activation(config.text("hidden_act", "gelu"), config.place("hidden_act"));
  config.check_sizes({{"image_size", stored}, {"patch_size", c.patch_size}});
  c.stored_side = stored / c.patch_size;
  if (config.boolean("use_swiglu_ffn", false))
    throw input_error("{}: found true, expected false: gated MLPs in a tower are not supported",
                      config.place("use_swiglu_ffn"));
  if (!config.boolean("qkv_bias", true)) throw input_error("{}: found false, expected true", config.place("qkv_bias"));
  return c;
}

/// CLIPVisionConfig's or SiglipVisionConfig's.
VitConfig read_clip(const ConfigReader& config, bool siglip) {
  VitConfig c;
  c.siglip = siglip;
  c.hidden_size = config.integer("hidden_size", 768);
  c.intermediate_size = config.integer("intermediate_size", 3072);
  c.num_hidden_layers = config.integer("num_hidden_layers", 12);
  c.num_attention_heads = config.integer("num_attention_heads", 12);
  c.num_channels = config.integer("num_channels", 3);
  c.image_size = config.integer("image_size", 224);
  c.patch_size = config.integer("patch_size", c.siglip ? 16 : 32);
  c.layer_norm_eps = config.number("layer_norm_eps", c.siglip ? 1e-6 : 1e-5);
  c.activation = parse_activation(config.text("hidden_act", c.siglip ? "gelu_pytorch_tanh" : "quick_gelu"),
                                  config.place("hidden_act"));
  return c;
}

}  // namespace

VitConfig read_vit_config(const ConfigReader& config, std::optional<int64_t> side) {
  const auto type = config.text("model_type", "clip_vision_model");
  if ((type == "clip" || type == "siglip") && config.has("vision_config")) {
    auto vision = config.object("vision_config");
    if (!vision.has("model_type") && type == "siglip")
      throw input_error("{}: missing, expected siglip_vision_model", vision.place("model_type"));
    return read_vit_config(vision, side);
  }
  if (type != "clip_vision_model" && type != "siglip_vision_model" && type != "dinov2")
    throw input_error(
        "{}: model type \"{}\" is not supported; known vision towers are clip_vision_model, siglip_vision_model, "
        "dinov2",
        config.place("model_type"), type);
  const auto c = type == "dinov2" ? read_dinov2(config, side) : read_clip(config, type == "siglip_vision_model");
  config.check_sizes({{"hidden_size", c.hidden_size},
                      {"intermediate_size", c.intermediate_size},
                      {"num_hidden_layers", c.num_hidden_layers},
                      {"num_attention_heads", c.num_attention_heads},
                      {"num_channels", c.num_channels},
                      {"image_size", c.image_size},
                      {"patch_size", c.patch_size}});
  if (c.hidden_size % c.num_attention_heads != 0)
    throw input_error("{}: found {}, expected a divisor of hidden_size {}", config.place("num_attention_heads"),
                      c.num_attention_heads, c.hidden_size);
  return c;
}

}  // namespace vlmtune
