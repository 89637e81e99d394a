#include "lib/models/llava/vision.h"

#include "lib/base/errors.h"
#include "lib/image/anyres.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"

namespace vlmtune {
namespace {

/// Tiles of a picture that go through the tower together; more only cost memory.
constexpr int64_t kTilesAtOnce = 8;

constexpr const char* kTower = "model.vision_tower.";

Tensor joined(const std::vector<Tensor>& parts) { return parts.size() == 1 ? parts[0] : torch::cat(parts, 0); }

}  // namespace

LlavaVision::LlavaVision(const LlavaVisionConfig& config, VlmParts parts) : config_(config) {
  if (parts != VlmParts::kWithoutTower) tower_ = config_.tower->build(config_.last_state());
  if (parts == VlmParts::kTower) return;
  const auto& p = config_.projector;
  for (int64_t i = 0; i < p.num_linears; ++i)
    projector_.emplace_back(i == 0 ? config_.feature_size() : p.width,
                            i + 1 < p.num_linears ? p.width : config_.text_hidden_size, p.bias);
  if (config_.is_next()) image_newline_ = declared({config_.text_hidden_size});
}

Tensor LlavaVision::tower(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const {
  VLMTUNE_CHECK(tower_ != nullptr, "pixels for a model without vision tower");
  const auto encode = [&](const Tensor& tiles) {
    const auto cast = [&] {
      const MemoryScope inputs(MemoryCategory::kInputs);
      return tiles.to(type);
    }();
    auto states = tower_->hidden_states(to_device(cast, tower_->device()), config_.feature_states,
                                        mode.vision_checkpointing, mode.training, stream.get());
    if (!config_.keep_class_token)
      for (auto& state : states) state = state.narrow(1, 1, state.size(1) - 1);
    return states.size() == 1 ? states[0] : torch::cat(states, -1);  // [N, P, F]
  };
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < pixels.size(0); begin += kTilesAtOnce)
    parts.push_back(encode(pixels.narrow(0, begin, std::min(kTilesAtOnce, pixels.size(0) - begin))));
  return joined(parts);
}

Tensor LlavaVision::scaled_down(const Tensor& grid) const {
  if (!config_.is_onevision()) return grid;
  const ImageSize size{static_cast<int>(grid.size(1)), static_cast<int>(grid.size(0))};
  const auto kept = limit_features(size, static_cast<int>(config_.grid_side()), config_.max_tiles);
  if (kept == size) return grid;
  const auto scaled = at::upsample_bilinear2d(grid.permute({2, 0, 1}).unsqueeze(0), {kept.height, kept.width},
                                              /*align_corners=*/false);
  return scaled.squeeze(0).permute({1, 2, 0});
}

Tensor LlavaVision::pack_next(const Tensor& tiles, ImageSize original) const {
  const int64_t side = config_.grid_side();
  const auto layout = anyres_layout(original, config_.grid_pinpoints, static_cast<int>(config_.tower->image_size),
                                    static_cast<int>(side));
  VLMTUNE_CHECK(tiles.size(0) == layout.num_tiles(), "{} tiles, the layout has {}", tiles.size(0), layout.num_tiles());
  const int64_t width = tiles.size(2);
  const auto grid = tiles.narrow(0, 1, layout.num_tiles() - 1)
                        .view({layout.grid_height, layout.grid_width, side, side, width})
                        .permute({0, 2, 1, 3, 4})
                        .reshape({layout.grid_height * side, layout.grid_width * side, width})
                        .narrow(0, layout.top, layout.height)
                        .narrow(1, layout.left, layout.width);  // [h, w, D]
  const auto kept = scaled_down(grid);
  const auto newline = image_newline_.to(tiles.scalar_type()).expand({kept.size(0), 1, width});
  return torch::cat({tiles[0], torch::cat({kept, newline}, 1).flatten(0, 1)}, 0);
}

Tensor LlavaVision::pack_video(const Tensor& frames) const {
  const int64_t side = config_.grid_side(), kept = config_.frame_side(), width = frames.size(2);
  const auto grids = frames.transpose(1, 2).reshape({frames.size(0), width, side, side});
  const auto scaled = at::upsample_bilinear2d(grids, {kept, kept}, /*align_corners=*/false);
  const auto tokens = scaled.permute({0, 2, 3, 1}).reshape({-1, width});
  return torch::cat({tokens, image_newline_.to(tokens.scalar_type()).unsqueeze(0)}, 0);
}

ImageFeatures LlavaVision::project(const Tensor& features, const std::vector<PictureShape>& shapes) const {
  const auto projected = [&] {
    const ModuleScope module("multi_modal_projector");
    auto x = features;  // [tiles, P, F]
    for (size_t i = 0; i < projector_.size(); ++i) {
      if (i > 0) x = activate(config_.projector.activation, x);
      x = projector_[i].forward(x);
    }
    return x;
  }();
  if (!config_.is_next()) return {projected.flatten(0, 1)};
  std::vector<Tensor> pictures;
  int64_t begin = 0;
  for (const auto& shape : shapes) {
    const auto tiles = projected.narrow(0, begin, shape.tiles);
    if (shape.is_video())
      pictures.push_back(pack_video(tiles));
    else if (config_.is_onevision() && shape.tiles == 1)
      pictures.push_back(torch::cat({tiles[0], image_newline_.to(tiles.scalar_type()).unsqueeze(0)}, 0));
    else
      pictures.push_back(pack_next(tiles, shape.original));
    begin += shape.tiles;
  }
  return {joined(pictures)};
}

void LlavaVision::visit(const TensorVisitor& visitor) {
  if (tower_) tower_->visit(kTower, visitor);
  for (size_t i = 0; i < projector_.size(); ++i)
    projector_[i].visit("model.multi_modal_projector.linear_" + std::to_string(i + 1), visitor);
  if (image_newline_.defined()) visitor("model.image_newline", image_newline_);
}

void LlavaVision::visit_linears(const LinearVisitor& visitor) {
  if (tower_) tower_->visit_linears(kTower, visitor);
  for (size_t i = 0; i < projector_.size(); ++i)
    visitor("model.multi_modal_projector.linear_" + std::to_string(i + 1), projector_[i]);
}

}  // namespace vlmtune
