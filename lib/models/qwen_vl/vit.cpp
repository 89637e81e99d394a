#include "lib/models/qwen_vl/vit.h"

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rope.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"
#include "lib/nn/residual_block.h"

namespace vlmtune {
namespace {

constexpr double kNormEps = 1e-6;

bool holds(const std::vector<int64_t>& list, int64_t number) {
  return std::find(list.begin(), list.end(), number) != list.end();
}

/// x [P, D] with its tokens of `patches_per_token` rows each in another order.
Tensor reorder(const Tensor& x, const Tensor& order, int64_t patches_per_token) {
  return x.view({-1, patches_per_token * x.size(1)}).index_select(0, order).view(x.sizes());
}

}  // namespace

VisionNorm vision_norm(const QwenVlVisionConfig& config, int64_t size) {
  if (config.gated) return RmsNorm(size, kNormEps);
  return LayerNorm(size, kNormEps);
}

Tensor normalise(const VisionNorm& norm, const Tensor& x) {
  return std::visit([&](const auto& n) { return n.forward(x); }, norm);
}

void visit_norm(VisionNorm& norm, const std::string& name, const TensorVisitor& visitor) {
  std::visit([&](auto& n) { n.visit(name, visitor); }, norm);
}

QwenVit::QwenVit(const QwenVlVisionConfig& c)
    : config_(c),
      patch_weight_(declared({c.hidden_size, c.in_channels, c.temporal_patch_size, c.patch_size, c.patch_size})) {
  if (c.patch_bias) patch_bias_ = declared({c.hidden_size});
  if (c.table_side > 0) position_table_ = declared({c.table_side * c.table_side, c.hidden_size});
  for (int64_t i = 0; i < c.depth; ++i) {
    blocks_.push_back({vision_norm(c, c.hidden_size), vision_norm(c, c.hidden_size),
                       Linear(c.hidden_size, 3 * c.hidden_size, true), Linear(c.hidden_size, c.hidden_size, true),
                       Mlp()});
    if (c.gated)
      blocks_.back().mlp = GatedMlp(c.hidden_size, c.intermediate_size, true, c.activation);
    else
      blocks_.back().mlp = Mlp(c.hidden_size, c.intermediate_size, c.activation);
  }
}

Tensor QwenVit::embed(const Tensor& pixels, ImageSize grid) const {
  const ModuleScope module("vision_tower.embeddings");
  const auto type = pixels.scalar_type();
  const auto bias = patch_bias_.defined() ? patch_bias_.to(type) : patch_bias_;
  const auto x = kernels::linear(blockwise_patches(pixels, config_),
                                 patch_weight_.to(type).view({config_.hidden_size, -1}), bias);  // [P, D]
  if (!position_table_.defined()) return x;
  auto taps = stretched_table(grid, config_.merge_size, config_.table_side);
  const auto rows = to_device(std::move(taps.rows), device()), weights = to_device(std::move(taps.weights), device());
  Tensor positions;  // [P, D] fp32
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const auto part = position_table_.index_select(0, rows[i]) * weights[i].unsqueeze(1);
    positions = positions.defined() ? positions + part : part;
  }
  return x + positions.to(type);
}

Tensor QwenVit::attend(const QwenVitBlock& block, const Tensor& x, const RopeTables& rope,
                       const std::vector<Windows::Group>& windows, bool training) const {
  const int64_t patches = x.size(0);
  const auto parts = block.qkv.forward(x, training).view({1, patches, 3, config_.num_heads, -1}).unbind(2);
  const auto q = kernels::rope(parts[0].transpose(1, 2), rope.cos, rope.sin);  // [1, H, P, d]
  const auto k = kernels::rope(parts[1].transpose(1, 2), rope.cos, rope.sin);
  const auto v = parts[2].transpose(1, 2);
  std::vector<Tensor> seen;
  int64_t begin = 0;
  for (const auto& [count, size] : windows) {
    const auto in_windows = [&, count = count, size = size](const Tensor& heads) {  // [count, H, size, d]
      return heads.squeeze(0).narrow(1, begin, count * size).unflatten(1, {count, size}).transpose(0, 1);
    };
    const auto y = kernels::attention(in_windows(q), in_windows(k), in_windows(v), false, {});
    seen.push_back(y.transpose(1, 2).reshape({count * size, config_.hidden_size}));
    begin += count * size;
  }
  return block.proj.forward(seen.size() == 1 ? seen[0] : torch::cat(seen, 0), training);
}

Tensor QwenVit::forward(const Tensor& pixels, const RecomputePolicy& policy, bool training,
                        WeightStream* stream) const {
  const PictureShape shape{.original = {},
                           .tiles = 1,
                           .height = static_cast<int>(pixels.size(2)),
                           .width = static_cast<int>(pixels.size(3))};
  const ImageSize grid = config_.patch_grid(shape);
  const int64_t per_token = config_.patches_per_token();
  auto positions = blockwise_positions(grid, config_.merge_size);  // [2, P]
  auto x = embed(pixels, grid);
  const auto everywhere = one_window(x.size(0));
  auto windows = everywhere;
  if (config_.window_size > 0) {
    const int merge = static_cast<int>(config_.merge_size);
    windows = square_windows({.width = grid.width / merge, .height = grid.height / merge},
                             config_.window_size / config_.merge_size / config_.patch_size, per_token);
    positions = positions.view({2, -1, per_token}).index_select(1, windows.order).view({2, -1});
    x = reorder(x, to_device(windows.order, x.device()), per_token);
  }
  const auto rope = axial_rope_tables(config_.rope_theta, config_.head_dim(), positions, pixels.options());
  if (policy.anything() && torch::GradMode::is_enabled()) x = require_input_grad(x);
  std::vector<Tensor> states;
  const BlockStack stack{policy, stream, "vision_tower."};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto& groups =
        holds(config_.full_attention_blocks, static_cast<int64_t>(i)) ? everywhere.groups : windows.groups;
    const auto attention = [this, &block = blocks_[i], rope, groups, training](const Tensor& in) {
      return attend(block, normalise(block.norm1, in), rope, groups, training);
    };
    const auto mlp = [&block = blocks_[i], training](const Tensor& in) {
      return std::visit([&](const auto& part) { return part.forward(normalise(block.norm2, in), training); },
                        block.mlp);
    };
    x = run_block(stack, i, x, attention, mlp);
    if (holds(config_.deepstack_blocks, static_cast<int64_t>(i))) states.push_back(x);
  }
  if (windows.order.defined()) x = reorder(x, to_device(windows.order.argsort(), x.device()), per_token);
  states.insert(states.begin(), x);
  return states.size() == 1 ? x : torch::cat(states, 0);
}

void QwenVit::visit(const std::string& prefix, const TensorVisitor& visitor) {
  visitor(prefix + "patch_embed.proj.weight", patch_weight_);
  if (patch_bias_.defined()) visitor(prefix + "patch_embed.proj.bias", patch_bias_);
  if (position_table_.defined()) visitor(prefix + "pos_embed.weight", position_table_);
  visit_linears(prefix, [&](const std::string& name, Linear& linear) { linear.visit(name, visitor); });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto block = prefix + "blocks." + std::to_string(i);
    visit_norm(blocks_[i].norm1, block + ".norm1", visitor);
    visit_norm(blocks_[i].norm2, block + ".norm2", visitor);
  }
}

void QwenVit::visit_linears(const std::string& prefix, const LinearVisitor& visitor) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto block = prefix + "blocks." + std::to_string(i);
    visitor(block + ".attn.qkv", blocks_[i].qkv);
    visitor(block + ".attn.proj", blocks_[i].proj);
    if (auto* gated = std::get_if<GatedMlp>(&blocks_[i].mlp)) {
      gated->visit_linears(block + ".mlp", visitor);
      continue;
    }
    auto& plain = std::get<Mlp>(blocks_[i].mlp);
    visitor(fmt::format("{}.mlp.{}1", block, config_.names->mlp), plain.fc1);
    visitor(fmt::format("{}.mlp.{}2", block, config_.names->mlp), plain.fc2);
  }
}

}  // namespace vlmtune
