#include "lib/models/vit/model.h"

#include <cmath>
#include <span>

#include "lib/base/errors.h"
#include "lib/memory/scope.h"
#include "lib/nn/residual_block.h"

namespace vlmtune {
namespace {

// Names for the parts that are CLIP's too.
constexpr std::pair<std::string_view, std::string_view> kDinov2Names[] = {
    {"embeddings.class_embedding", "embeddings.cls_token"},
    {"embeddings.patch_embedding.", "embeddings.patch_embeddings.projection."},
    {"embeddings.position_embedding.weight", "embeddings.position_embeddings"},
    {"encoder.layers.", "encoder.layer."},
    {".layer_norm1", ".norm1"},
    {".layer_norm2", ".norm2"},
    {".self_attn.q_proj", ".attention.attention.query"},
    {".self_attn.k_proj", ".attention.attention.key"},
    {".self_attn.v_proj", ".attention.attention.value"},
    {".self_attn.out_proj", ".attention.output.dense"},
};
constexpr std::pair<std::string_view, std::string_view> kBiggNames[] = {
    {"embeddings.patch_embedding.", "conv1."},
    {"embeddings.position_embedding.weight", "positional_embedding"},
    {"pre_layrnorm", "ln_pre"},
    {"encoder.layers.", "transformer.resblocks."},
    {".layer_norm1", ".ln_1"},
    {".layer_norm2", ".ln_2"},
    {".self_attn.", ".attn."},
    {".mlp.fc1", ".mlp.c_fc"},
    {".mlp.fc2", ".mlp.c_proj"},
};

std::string own_name(std::string name, const VitConfig& config) {
  using Names = std::span<const std::pair<std::string_view, std::string_view>>;
  for (const auto& [from, to] : config.dinov2 ? Names(kDinov2Names) : config.bigg ? Names(kBiggNames) : Names())
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  return name;
}

Tensor scaled(const Tensor& branch, const Tensor& scale) {
  return scale.defined() ? branch * scale.to(branch.scalar_type()) : branch;
}

}  // namespace

Tensor resized_positions(const Tensor& table, int64_t side) {
  const auto stored = static_cast<int64_t>(std::lround(std::sqrt(table.size(0))));
  if (stored == side) return table;
  const auto grid = table.view({1, stored, stored, -1}).permute({0, 3, 1, 2}).to(torch::kFloat);
  const auto resized = at::upsample_bicubic2d(grid, {side, side}, /*align_corners=*/false);
  return resized.permute({0, 2, 3, 1}).reshape({side * side, -1}).to(table.scalar_type());
}

Vit::Vit(const VitConfig& c, int64_t num_layers)
    : config_(c),
      patch_embedding_(c.num_channels, c.hidden_size, c.patch_size, c.siglip || c.dinov2),
      position_embedding_(declared({c.num_positions(), c.hidden_size})) {
  if (c.dinov2) {
    class_embedding_ = declared({1, 1, c.hidden_size});
    position_embedding_ = declared({1, c.num_positions(), c.hidden_size});
    if (num_layers == c.num_hidden_layers) last_layernorm_ = LayerNorm(c.hidden_size, c.layer_norm_eps);
  } else if (!c.siglip) {
    if (c.has_class_token()) class_embedding_ = declared({c.hidden_size});
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
                                  .output_name = "out_proj",
                                  .fused = c.bigg ? FusedQkv::kByHead : FusedQkv::kNone,
                                  .fused_name = "in_proj"}),
                       Mlp(c.hidden_size, c.intermediate_size, c.activation),
                       c.dinov2 ? declared({c.hidden_size}) : Tensor(),
                       c.dinov2 ? declared({c.hidden_size}) : Tensor()});
  }
}

Tensor Vit::positions() const {
  const int64_t side = config_.patches_per_side(), stored = config_.stored_side;
  const auto all = position_embedding_.view({-1, config_.hidden_size});
  if (stored == 0 || stored == side) return all;
  const int64_t first = config_.has_class_token() ? 1 : 0;
  const auto resized = resized_positions(all.narrow(0, first, stored * stored), side);
  return first == 0 ? resized : torch::cat({all.narrow(0, 0, 1), resized}, 0);
}

Tensor Vit::embed(const Tensor& pixels) const {
  const ModuleScope module("vision_tower.embeddings");
  const auto type = pixels.scalar_type();
  auto x = patch_embedding_.forward(pixels).flatten(1, 2);  // [N, P, D]
  if (class_embedding_.defined())
    x = torch::cat({class_embedding_.to(type).view({1, 1, -1}).expand({pixels.size(0), 1, -1}), x}, 1);
  x = x + positions().to(type);
  return pre_layernorm_.weight.defined() ? pre_layernorm_.forward(x) : x;
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
      return scaled(layer.self_attn.forward(layer.layer_norm1.forward(in), nullptr, {}, nullptr, 0, training),
                    layer.layer_scale1);
    };
    const auto mlp = [&layer = layers_[i], training](const Tensor& in) {
      return scaled(layer.mlp.forward(layer.layer_norm2.forward(in), training), layer.layer_scale2);
    };
    x = run_block(stack, i, x, attention, mlp);
    const auto state = static_cast<int64_t>(i) + 1;
    keep(state,
         last_layernorm_.weight.defined() && state == config_.num_hidden_layers ? last_layernorm_.forward(x) : x);
  }
  return kept;
}

void Vit::visit(const std::string& prefix, const TensorVisitor& show) {
  const TensorVisitor visitor = [&](const std::string& name, Tensor& tensor) { show(own_name(name, config_), tensor); };
  if (class_embedding_.defined()) visitor(prefix + "embeddings.class_embedding", class_embedding_);
  patch_embedding_.visit(prefix + "embeddings.patch_embedding", visitor);
  visitor(prefix + "embeddings.position_embedding.weight", position_embedding_);
  if (pre_layernorm_.weight.defined()) pre_layernorm_.visit(prefix + "pre_layrnorm", visitor);  // the field's spelling
  if (last_layernorm_.weight.defined()) last_layernorm_.visit(prefix + "layernorm", visitor);
  visit_linears(prefix, [&](const std::string& name, Linear& linear) { linear.visit(name, show); });
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = prefix + "encoder.layers." + std::to_string(i);
    layers_[i].layer_norm1.visit(layer + ".layer_norm1", visitor);
    layers_[i].layer_norm2.visit(layer + ".layer_norm2", visitor);
    if (!config_.dinov2) continue;
    visitor(layer + ".layer_scale1.lambda1", layers_[i].layer_scale1);
    visitor(layer + ".layer_scale2.lambda1", layers_[i].layer_scale2);
  }
}

void Vit::visit_linears(const std::string& prefix, const LinearVisitor& show) {
  const LinearVisitor visitor = [&](const std::string& name, Linear& linear) { show(own_name(name, config_), linear); };
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = prefix + "encoder.layers." + std::to_string(i);
    layers_[i].self_attn.visit_linears(layer + ".self_attn", visitor);
    layers_[i].mlp.visit_linears(layer + ".mlp", visitor);
  }
}

}  // namespace vlmtune
