// Configuration of Llama-like decoders: Llama, Vicuna, Mistral, Qwen2, and the language models inside LLaVA and Qwen-VL.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lib/nn/mlp.h"
#include "lib/nn/rope.h"

namespace vlmtune {

class ConfigReader;

/// What a family calls the parts of its decoder.
struct DecoderNames {
  std::string prefix = {};  ///< of every name; empty: "model.", or "model.language_model." beside a vision part
  std::string embed_tokens = "embed_tokens", layers = "layers", norm = "norm", input_layernorm = "input_layernorm",
              post_attention_layernorm = "post_attention_layernorm", self_attn = "self_attn", o_proj = "o_proj";
  std::string fused_qkv = {};  ///< one layer in place of q_proj, k_proj and v_proj; empty: those three
  GatedMlpNames mlp = {};
};

struct DecoderConfig {
  std::string model_type;  ///< "llama", "mistral", "qwen2", "qwen3", "qwen2_vl"...
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  int64_t num_hidden_layers = 0, num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;  ///< queries and keys are normalised, head by head
  Activation activation = Activation::kSilu;
  RopeOptions rope;
  int64_t sliding_window = 0;          ///< 0: none
  std::vector<bool> layer_is_sliding;  ///< one per layer
  int64_t query_log_base = 0;  ///< when not training, queries grow logarithmically beyond so many tokens; 0: never
  DecoderNames names;
};

/// Reads a text config with the defaults that transformers gives to the model type, which is `fallback_type` where the
/// config does not say. Errors: input_error.
DecoderConfig read_decoder_config(const ConfigReader& config, const std::string& fallback_type = "llama");

}  // namespace vlmtune
