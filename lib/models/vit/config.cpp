#include "lib/models/vit/config.h"

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/models/vit/model.h"

namespace vlmtune {
namespace {

std::shared_ptr<const TowerConfig> checked(const ConfigReader& config, const VitConfig& c) {
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
  return std::make_shared<VitConfig>(c);
}

VitConfig read_either(const ConfigReader& config, bool siglip) {
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

std::shared_ptr<const TowerConfig> read_clip(const ConfigReader& config, std::optional<int64_t>) {
  return checked(config, read_either(config, false));
}

std::shared_ptr<const TowerConfig> read_siglip(const ConfigReader& config, std::optional<int64_t>) {
  return checked(config, read_either(config, true));
}

std::shared_ptr<const TowerConfig> read_dinov2(const ConfigReader& config, std::optional<int64_t> side) {
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
  return checked(config, c);
}

std::string VitConfig::describe() const {
  return fmt::format(
      "siglip {} dinov2 {} on {} hidden {} {} layers {} heads {} image {} patch {} channels {} eps {} activation {}",
      siglip, dinov2, stored_side, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, image_size,
      patch_size, num_channels, layer_norm_eps, static_cast<int>(activation));
}

std::vector<std::string> VitConfig::unused_modules(int64_t state) const {
  std::vector<std::string> modules{"post_layernorm", "head"};
  if (dinov2 && state < num_hidden_layers) modules.push_back("layernorm");
  for (int64_t i = state; i < num_hidden_layers; ++i)
    modules.push_back(fmt::format("encoder.layer{}.{}", dinov2 ? "" : "s", i));
  return modules;
}

std::unique_ptr<Tower> VitConfig::build(int64_t state) const { return std::make_unique<Vit>(*this, state); }

}  // namespace vlmtune
