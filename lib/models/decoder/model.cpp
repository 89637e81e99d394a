#include "lib/models/decoder/model.h"

#include "lib/base/errors.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"
#include "lib/nn/residual_block.h"

namespace vlmtune {
namespace {

/// The length by which frequencies are chosen. The first Qwen's are those of its training there, and a prompt's stay for all
/// that follows it.
int64_t rope_length(const RopeOptions& rope, const DecoderCall& call) {
  const int64_t longest = call.positions.max().item<int64_t>() + 1;
  if (rope.type != "doubling") return longest;
  if (call.training) return rope.original_max_position_embeddings;
  if (call.cache == nullptr) return longest;
  if (call.cache->length() == 0) call.cache->rope_length = longest;
  return call.cache->rope_length;
}

}  // namespace

Decoder::Decoder(const DecoderConfig& c)
    : embed_tokens(declared({c.vocab_size, c.hidden_size})), config_(c), norm_(c.hidden_size, c.rms_norm_eps) {
  if (c.tie_word_embeddings) tied_gradient = c10::make_intrusive<kernels::TiedGradientSlot>();
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    layers_.push_back({RmsNorm(c.hidden_size, c.rms_norm_eps), RmsNorm(c.hidden_size, c.rms_norm_eps),
                       Attention({.hidden_size = c.hidden_size,
                                  .num_heads = c.num_attention_heads,
                                  .num_key_value_heads = c.num_key_value_heads,
                                  .head_dim = c.head_dim,
                                  .qkv_bias = c.qkv_bias,
                                  .output_bias = c.output_bias,
                                  .qk_norm_eps = c.qk_norm ? c.rms_norm_eps : 0,
                                  .output_name = c.names.o_proj,
                                  .fused = c.names.fused_qkv.empty() ? FusedQkv::kNone : FusedQkv::kByPart,
                                  .fused_name = c.names.fused_qkv}),
                       GatedMlp(c.hidden_size, c.intermediate_size, c.mlp_bias, c.activation),
                       c.layer_is_sliding[static_cast<size_t>(i)]});
  }
}

Tensor Decoder::embed(const Tensor& ids, torch::ScalarType type) const {
  const MemoryScope scope(MemoryCategory::kActivations);
  const ModuleScope module("embed_tokens");
  auto known = torch::where((ids >= 0).logical_and(ids < embed_tokens.size(0)), ids, torch::zeros_like(ids));
  return kernels::embedding(embed_tokens, to_device(std::move(known), embed_tokens.device()), tied_gradient).to(type);
}

Tensor Decoder::forward(Tensor x, const DecoderCall& call) const {
  const MemoryScope scope(MemoryCategory::kActivations);
  const int64_t tokens = x.size(1), past = call.cache != nullptr ? call.cache->length() : 0;
  auto rope = rope_tables(config_.rope, call.positions, rope_length(config_.rope, call), x.options());
  if (config_.query_log_base > 0 && !call.training)
    rope.query_scale = logarithmic_query_scale(config_.query_log_base, past, tokens, x.options());
  const auto mask_of = [&](int64_t window) {
    return call.first_keys.defined() ? packed_mask(call.first_keys, window, x.device())
                                     : decoder_mask(tokens, past, call.left_padding, window, x.options());
  };
  const auto full = mask_of(0);
  const auto window = config_.sliding_window > 0 ? mask_of(config_.sliding_window) : full;
  if ((call.recompute.anything() || stream) && torch::GradMode::is_enabled()) x = require_input_grad(x);
  const BlockStack stack{call.recompute, stream.get(), ""};
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = layers_[i];
    const auto attention = [&layer, rope, mask = layer.sliding ? window : full, training = call.training,
                            cache = call.cache, index = static_cast<int64_t>(i)](const Tensor& in) {
      return layer.self_attn.forward(layer.input_layernorm.forward(in), &rope, mask, cache, index, training);
    };
    const auto mlp = [&layer, training = call.training](const Tensor& in) {
      return layer.mlp.forward(layer.post_attention_layernorm.forward(in), training);
    };
    x = run_block(stack, i, x, attention, mlp);
    if (i < call.deepstack.features.size())
      x = x.flatten(0, 1).index_add(0, call.deepstack.slots, call.deepstack.features[i]).view(x.sizes());
  }
  const ModuleScope module("norm");
  return norm_.forward(x);
}

void Decoder::visit(const std::string& prefix, const TensorVisitor& visitor) {
  const auto& names = config_.names;
  visitor(prefix + names.embed_tokens + ".weight", embed_tokens);
  visit_linears(prefix, [&](const std::string& name, Linear& linear) { linear.visit(name, visitor); });
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = fmt::format("{}{}.{}.", prefix, names.layers, i);
    layers_[i].self_attn.visit_norms(layer + names.self_attn, visitor);
    layers_[i].input_layernorm.visit(layer + names.input_layernorm, visitor);
    layers_[i].post_attention_layernorm.visit(layer + names.post_attention_layernorm, visitor);
  }
  norm_.visit(prefix + names.norm, visitor);
}

void Decoder::visit_linears(const std::string& prefix, const LinearVisitor& visitor) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = fmt::format("{}{}.{}.", prefix, config_.names.layers, i);
    layers_[i].self_attn.visit_linears(layer + config_.names.self_attn, visitor);
    layers_[i].mlp.visit_linears(layer + "mlp", visitor, config_.names.mlp);
  }
}

}  // namespace vlmtune
