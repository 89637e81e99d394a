#include "lib/models/vit/model.h"

#include "kernels/linear.h"
#include "lib/base/errors.h"
#include "lib/memory/scope.h"
#include "lib/nn/residual_block.h"

namespace vlmtune {

Vit::Vit(const VitConfig& c, int64_t num_layers)
    : config_(c),
      patch_weight_(declared({c.hidden_size, c.num_channels, c.patch_size, c.patch_size})),
      position_embedding_(declared({c.num_positions(), c.hidden_size})) {
  if (c.siglip) {
    patch_bias_ = declared({c.hidden_size});
  } else {
    class_embedding_ = declared({c.hidden_size});
    pre_layernorm_ = LayerNorm(c.hidden_size, c.layer_norm_eps);
  }
  for (int64_t i = 0; i < num_layers; ++i) {
    layers_.push_back({LayerNorm(c.hidden_size, c.layer_norm_eps), LayerNorm(c.hidden_size, c.layer_norm_eps),
                       Attention({.hidden_size = c.hidden_size,
                                  .num_heads = c.num_attention_heads,
                                  .num_key_value_heads = c.num_attention_heads,
                                  .head_dim = c.hidden_size / c.num_attention_heads,
                                  .qkv_bias = true,
                                  .output_bias = true,
                                  .output_name = "out_proj"}),
                       Mlp(c.hidden_size, c.intermediate_size, c.activation)});
  }
}

Tensor Vit::embed(const Tensor& pixels) const {
  const ModuleScope module("vision_tower.embeddings");
  const auto type = pixels.scalar_type();
  const int64_t images = pixels.size(0), channels = config_.num_channels, p = config_.patch_size,
                side = config_.patches_per_side();
  // The patch convolution as one matrix product: no workspace, and the same code on every device.
  const auto patches = pixels.narrow(2, 0, side * p)
                           .narrow(3, 0, side * p)
                           .view({images, channels, side, p, side, p})
                           .permute({0, 2, 4, 1, 3, 5})
                           .reshape({images, side * side, channels * p * p});
  const auto bias = patch_bias_.defined() ? patch_bias_.to(type) : patch_bias_;
  auto x = kernels::linear(patches, patch_weight_.to(type).view({config_.hidden_size, -1}), bias);  // [N, P, D]
  if (class_embedding_.defined()) x = torch::cat({class_embedding_.to(type).expand({images, 1, -1}), x}, 1);
  x = x + position_embedding_.to(type);
  return config_.siglip ? x : pre_layernorm_.forward(x);
}

std::vector<Tensor> Vit::hidden_states(const Tensor& pixels, const std::vector<int64_t>& states,
                                       const RecomputePolicy& policy, bool training, WeightStream* stream) const {
  VLMTUNE_CHECK(pixels.dim() == 4 && pixels.size(2) == config_.image_size && pixels.size(3) == config_.image_size,
                "pixels of {} x {}, the tower takes {}", pixels.size(2), pixels.size(3), config_.image_size);
  std::vector<Tensor> kept(states.size());
  const auto keep = [&](int64_t index, const Tensor& x) {
    for (size_t s = 0; s < states.size(); ++s)
      if (states[s] == index) kept[s] = x;
  };
  const MemoryScope scope(MemoryCategory::kVisionActivations);
  auto x = embed(pixels);
  if (policy.anything() && torch::GradMode::is_enabled()) x = require_input_grad(x);
  keep(0, x);
  const BlockStack stack{policy, stream, "vision_tower."};
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto attention = [&layer = layers_[i], training](const Tensor& in) {
      return layer.self_attn.forward(layer.layer_norm1.forward(in), nullptr, {}, nullptr, 0, training);
    };
    const auto mlp = [&layer = layers_[i], training](const Tensor& in) {
      return layer.mlp.forward(layer.layer_norm2.forward(in), training);
    };
    x = run_block(stack, i, x, attention, mlp);
    keep(static_cast<int64_t>(i) + 1, x);
  }
  return kept;
}

void Vit::visit(const std::string& prefix, const TensorVisitor& visitor) {
  if (class_embedding_.defined()) visitor(prefix + "embeddings.class_embedding", class_embedding_);
  visitor(prefix + "embeddings.patch_embedding.weight", patch_weight_);
  if (patch_bias_.defined()) visitor(prefix + "embeddings.patch_embedding.bias", patch_bias_);
  visitor(prefix + "embeddings.position_embedding.weight", position_embedding_);
  if (!config_.siglip) pre_layernorm_.visit(prefix + "pre_layrnorm", visitor);  // the field's spelling
  visit_linears(prefix, [&](const std::string& name, Linear& linear) { linear.visit(name, visitor); });
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = prefix + "encoder.layers." + std::to_string(i);
    layers_[i].layer_norm1.visit(layer + ".layer_norm1", visitor);
    layers_[i].layer_norm2.visit(layer + ".layer_norm2", visitor);
  }
}

void Vit::visit_linears(const std::string& prefix, const LinearVisitor& visitor) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = prefix + "encoder.layers." + std::to_string(i);
    layers_[i].self_attn.visit_linears(layer + ".self_attn", visitor);
    layers_[i].mlp.visit_linears(layer + ".mlp", visitor);
  }
}

}  // namespace vlmtune
