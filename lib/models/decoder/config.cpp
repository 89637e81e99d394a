// Defaults are those of transformers' LlamaConfig, MistralConfig, Qwen2Config, Qwen2VLTextConfig...: published checkpoints
// often hold only what differs from them.
#include "lib/models/decoder/config.h"

#include <algorithm>
#include <numeric>

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"

namespace vlmtune {
namespace {

struct Defaults {
  const char* model_type;
  int64_t vocab_size, hidden_size, intermediate_size, layers, heads, kv_heads, max_positions;
  double eps = 1e-6, theta = 10000;
  int64_t full_layers = 0;                 ///< before the first that slides, if a window is used; 0: none ever does
  std::array<int64_t, 3> mrope_section{};  ///< all 0: positions have one axis
  int64_t head_dim = 0;                    ///< 0: hidden size / heads
};
constexpr Defaults kDefaults[] = {
    {"llama", 32000, 4096, 11008, 32, 32, 0, 2048},
    {"mistral", 32000, 4096, 14336, 32, 32, 8, 131072},
    {"qwen2", 151936, 4096, 22016, 32, 32, 32, 32768, 1e-6, 10000, 28},
    {"qwen3", 151936, 4096, 22016, 32, 32, 32, 32768, 1e-6, 10000, 28, {}, 128},
    {"qwen2_vl", 152064, 8192, 29568, 80, 64, 8, 32768, 1e-5, 1e6, 80, {16, 24, 24}},
    {"qwen2_5_vl", 152064, 8192, 29568, 80, 64, 8, 32768, 1e-5, 1e6, 80, {16, 24, 24}},
    {"qwen3_vl", 151936, 4096, 22016, 32, 32, 32, 128000, 1e-6, 5e5, 0, {24, 20, 20}, 128},
};

const Defaults& defaults_of(const ConfigReader& config, const std::string& model_type) {
  for (const auto& defaults : kDefaults)
    if (model_type == defaults.model_type) return defaults;
  std::vector<std::string> known;
  for (const auto& defaults : kDefaults) known.emplace_back(defaults.model_type);
  throw input_error("{}: model type \"{}\" is not supported; known language models are {}", config.place("model_type"),
                    model_type, fmt::join(known, ", "));
}

/// `rope_parameters`, or the older `rope_scaling` beside `rope_theta`.
RopeOptions read_rope(const ConfigReader& config, const Defaults& defaults, int64_t head_dim, int64_t max_positions) {
  const bool is_new = config.has("rope_parameters");
  const auto rope = config.object(is_new ? "rope_parameters" : "rope_scaling");
  RopeOptions o;
  o.head_dim = head_dim;
  o.max_position_embeddings = max_positions;
  o.theta = rope.number("rope_theta", config.number("rope_theta", defaults.theta));
  o.type = rope.text("rope_type", rope.text("type", "default"));
  if (o.type == "mrope") o.type = "default";  // as Qwen2-VL's own files call it
  o.original_max_position_embeddings = rope.integer("original_max_position_embeddings",
                                                    config.integer("original_max_position_embeddings", max_positions));
  const bool has_original =
      rope.has("original_max_position_embeddings") || config.has("original_max_position_embeddings");
  const double grown =
      has_original && o.type == "longrope"
          ? static_cast<double>(max_positions) / static_cast<double>(o.original_max_position_embeddings)
          : 1;
  o.factor = rope.number("factor", grown);
  o.low_freq_factor = rope.number("low_freq_factor", 1);
  o.high_freq_factor = rope.number("high_freq_factor", 4);
  o.beta_fast = rope.number("beta_fast", 32);
  o.beta_slow = rope.number("beta_slow", 1);
  o.mscale = rope.number("mscale", 0);
  o.mscale_all_dim = rope.number("mscale_all_dim", 0);
  o.truncate = rope.boolean("truncate", true);
  o.attention_factor = rope.number("attention_factor", 0);
  o.short_factor = rope.numbers("short_factor");
  o.long_factor = rope.numbers("long_factor");
  if (defaults.mrope_section[0] > 0) {
    o.mrope_section = rope.integers("mrope_section");
    if (o.mrope_section.empty()) o.mrope_section.assign(defaults.mrope_section.begin(), defaults.mrope_section.end());
    if (o.mrope_section.size() < 3 ||
        std::accumulate(o.mrope_section.begin(), o.mrope_section.end(), int64_t{0}) != head_dim / 2)
      throw input_error("{}: found {}, expected three sizes or more that make {}, the pairs of channels",
                        rope.place("mrope_section"), fmt::join(o.mrope_section, " + "), head_dim / 2);
  }
  static constexpr const char* kKnown[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
  if (std::find(std::begin(kKnown), std::end(kKnown), o.type) == std::end(kKnown))
    throw input_error("{}: \"{}\" is not supported; known are default, linear, dynamic, llama3, yarn, longrope",
                      rope.place("rope_type"), o.type);
  if (o.type == "longrope" && (static_cast<int64_t>(o.short_factor.size()) != head_dim / 2 ||
                               static_cast<int64_t>(o.long_factor.size()) != head_dim / 2))
    throw input_error("{}: expected {} factors, one per pair of channels", rope.place("short_factor"), head_dim / 2);
  return o;
}

void read_layer_kinds(const ConfigReader& config, const Defaults& defaults, DecoderConfig& c) {
  int64_t first_sliding = 0;
  bool sliding = false;
  if (c.model_type == "mistral") {
    // Absent means the default window, null means none.
    c.sliding_window = config.integer("sliding_window", config.mentions("sliding_window") ? 0 : 4096);
    sliding = c.sliding_window > 0;
  } else if (defaults.full_layers > 0 && config.boolean("use_sliding_window", false)) {
    c.sliding_window = config.integer("sliding_window", 4096);
    first_sliding = config.integer("max_window_layers", defaults.full_layers);
    sliding = c.sliding_window > 0;
  }
  const auto kinds = config.texts("layer_types");
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const bool listed = i < static_cast<int64_t>(kinds.size());
    c.layer_is_sliding.push_back(sliding &&
                                 (listed ? kinds[static_cast<size_t>(i)] == "sliding_attention" : i >= first_sliding));
  }
}

}  // namespace

DecoderConfig read_decoder_config(const ConfigReader& config, const std::string& fallback_type) {
  DecoderConfig c;
  c.model_type = config.text("model_type", fallback_type);
  if (constexpr std::string_view kText = "_text"; c.model_type.ends_with(kText))
    c.model_type.resize(c.model_type.size() - kText.size());
  const auto& d = defaults_of(config, c.model_type);
  c.vocab_size = config.integer("vocab_size", d.vocab_size);
  c.hidden_size = config.integer("hidden_size", d.hidden_size);
  c.intermediate_size = config.integer("intermediate_size", d.intermediate_size);
  c.num_hidden_layers = config.integer("num_hidden_layers", d.layers);
  c.num_attention_heads = config.integer("num_attention_heads", d.heads);
  c.num_key_value_heads = config.integer("num_key_value_heads", d.kv_heads > 0 ? d.kv_heads : c.num_attention_heads);
  config.check_sizes({{"vocab_size", c.vocab_size},
                      {"hidden_size", c.hidden_size},
                      {"intermediate_size", c.intermediate_size},
                      {"num_hidden_layers", c.num_hidden_layers},
                      {"num_attention_heads", c.num_attention_heads},
                      {"num_key_value_heads", c.num_key_value_heads}});
  c.head_dim = config.integer("head_dim", d.head_dim > 0 ? d.head_dim : c.hidden_size / c.num_attention_heads);
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw input_error("{}: found {}, expected a divisor of num_attention_heads {}", config.place("num_key_value_heads"),
                      c.num_key_value_heads, c.num_attention_heads);
  if (c.head_dim <= 0 || c.head_dim % 2 != 0)
    throw input_error("{}: found {}, expected a positive even size", config.place("head_dim"), c.head_dim);
  c.max_position_embeddings = config.integer("max_position_embeddings", d.max_positions);
  c.rms_norm_eps = config.number("rms_norm_eps", d.eps);
  c.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.model_type.starts_with("qwen2") || config.boolean("attention_bias", false);
  c.qk_norm = c.model_type.starts_with("qwen3");
  c.output_bias = (c.model_type == "llama" || c.qk_norm) && config.boolean("attention_bias", false);
  c.mlp_bias = c.model_type == "llama" && config.boolean("mlp_bias", false);
  c.activation = parse_activation(config.text("hidden_act", "silu"), config.place("hidden_act"));
  c.rope = read_rope(config, d, c.head_dim, c.max_position_embeddings);
  c.rope.mrope_interleaved = c.model_type == "qwen3_vl";
  read_layer_kinds(config, d, c);
  return c;
}

}  // namespace vlmtune
