#include "lib/models/llava/model.h"

#include "kernels/composed.h"
#include "kernels/linear.h"
#include "kernels/linear_cross_entropy.h"
#include "lib/base/errors.h"
#include "lib/image/anyres.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"
#include "lib/models/names.h"

namespace vlmtune {
namespace {

/// Tiles of a picture that go through the tower together; more only cost memory.
constexpr int64_t kTilesAtOnce = 8;

constexpr std::string_view kTowerPrefix = "model.vision_tower.";

Tensor joined(const std::vector<Tensor>& parts) { return parts.size() == 1 ? parts[0] : torch::cat(parts, 0); }

}  // namespace

LlavaModel::LlavaModel(const LlavaConfig& config, LlavaParts parts)
    : config_(config), parts_(parts), language_model_(config.text) {
  const auto& text = config_.text;
  if (!text.tie_word_embeddings) lm_head_ = Linear(text.hidden_size, text.vocab_size, false);
  if (!config_.vision) return;
  if (parts != LlavaParts::kWithoutTower)
    vision_tower_ = std::make_unique<Vit>(*config_.vision, config_.num_vision_layers());
  int64_t width = config_.vision->hidden_size * static_cast<int64_t>(config_.feature_states.size());
  for (int64_t i = 0; i < config_.projector.num_linears; ++i) {
    projector_.emplace_back(width, text.hidden_size, config_.projector.bias);
    width = text.hidden_size;
  }
  if (config_.is_next()) image_newline_ = declared({text.hidden_size});
}

Tensor LlavaModel::project(const Tensor& features) const {
  const ModuleScope module("multi_modal_projector");
  auto x = features;
  for (size_t i = 0; i < projector_.size(); ++i) {
    if (i > 0) x = activate(config_.projector.activation, x);
    x = projector_[i].forward(x);
  }
  return x;
}

Tensor LlavaModel::pack_next(const Tensor& tiles, ImageSize original) const {
  const int64_t side = config_.vision->patches_per_side();
  const auto layout = anyres_layout(original, config_.grid_pinpoints, static_cast<int>(config_.vision->image_size),
                                    static_cast<int>(side));
  VLMTUNE_CHECK(tiles.size(0) == layout.num_tiles(), "{} tiles, the layout has {}", tiles.size(0), layout.num_tiles());
  const int64_t width = tiles.size(2);
  const auto grid = tiles.narrow(0, 1, layout.num_tiles() - 1)
                        .view({layout.grid_height, layout.grid_width, side, side, width})
                        .permute({0, 2, 1, 3, 4})
                        .reshape({layout.grid_height * side, layout.grid_width * side, width})
                        .narrow(0, layout.top, layout.height)
                        .narrow(1, layout.left, layout.width);  // [h, w, D]
  const auto newline = image_newline_.to(tiles.scalar_type()).expand({layout.height, 1, width});
  return torch::cat({tiles[0], torch::cat({grid, newline}, 1).flatten(0, 1)}, 0);
}

bool LlavaModel::leaves_out(const std::string& name) const {
  const bool of_tower = name.starts_with(kTowerPrefix);
  return parts_ == LlavaParts::kTower ? !of_tower : parts_ == LlavaParts::kWithoutTower && of_tower;
}

Tensor LlavaModel::tile_features(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const {
  VLMTUNE_CHECK(vision_tower_ != nullptr, "pixels for a model without vision tower");
  const MemoryScope scope(MemoryCategory::kVisionActivations);
  const auto encode = [&](const Tensor& tiles) {
    const auto cast = [&] {
      const MemoryScope inputs(MemoryCategory::kInputs);
      return tiles.to(type);
    }();
    auto states = vision_tower_->hidden_states(to_device(cast, vision_tower_->device()), config_.feature_states,
                                               mode.vision_checkpointing, mode.training);
    if (!config_.keep_class_token)
      for (auto& state : states) state = state.narrow(1, 1, state.size(1) - 1);
    return states.size() == 1 ? states[0] : torch::cat(states, -1);  // [N, P, F]
  };
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < pixels.size(0); begin += kTilesAtOnce)
    parts.push_back(encode(pixels.narrow(0, begin, std::min(kTilesAtOnce, pixels.size(0) - begin))));
  return joined(parts);
}

std::vector<Tensor> LlavaModel::encode_images(const ImageInputs& images, torch::ScalarType type,
                                              const TrainingMode& mode) const {
  if (images.num_tiles.empty()) return {};
  const MemoryScope scope(MemoryCategory::kVisionActivations);
  const auto run_tower = [&] {
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (const int64_t tiles : images.num_tiles) {
      parts.push_back(tile_features(images.pixels.narrow(0, begin, tiles), type, mode));
      begin += tiles;
    }
    return joined(parts);
  };
  const auto features = project(
      images.features.defined() ? to_device(images.features, language_model_.embed_tokens.device()) : run_tower());
  std::vector<Tensor> result;
  int64_t begin = 0;
  for (size_t i = 0; i < images.num_tiles.size(); ++i) {
    const auto tiles = features.narrow(0, begin, images.num_tiles[i]);
    result.push_back(config_.is_next() ? pack_next(tiles, images.sizes[i]) : tiles.flatten(0, 1));
    begin += images.num_tiles[i];
  }
  return result;
}

Tensor LlavaModel::embed(const Tensor& ids, const ImageInputs& images, torch::ScalarType type,
                         const TrainingMode& mode) const {
  const MemoryScope scope(MemoryCategory::kActivations);
  const auto embeds = language_model_.embed(ids, type);  // [B, T, D]
  const auto features = encode_images(images, type, mode);
  auto slots = (ids.flatten() == config_.image_token_id).nonzero().squeeze(1);
  if (features.empty() && slots.numel() == 0) return embeds;
  VLMTUNE_CHECK(!features.empty(), "{} image slots and no image", slots.numel());
  const auto rows = torch::cat(features, 0);  // [image tokens, D]
  VLMTUNE_CHECK(rows.size(0) == slots.numel(), "{} image features for {} image slots", rows.size(0), slots.numel());
  return embeds.flatten(0, 1).index_copy(0, to_device(std::move(slots), embeds.device()), rows).view(embeds.sizes());
}

Tensor LlavaModel::logits(const Tensor& hidden) const {
  const MemoryScope scope(MemoryCategory::kLogits);
  const ModuleScope module("lm_head");
  if (lm_head_.quantized) return kernels::quantized_linear(hidden, lm_head_.quantized, {});
  return kernels::linear(hidden, head_weight().to(hidden.scalar_type()), {});
}

Tensor LlavaModel::loss_sum(const Tensor& hidden, const Tensor& labels, int64_t chunk_tokens) const {
  const MemoryScope scope(MemoryCategory::kLogits);
  const ModuleScope module("lm_head");
  if (kernels::is_composed(hidden) && chunk_tokens == 0)
    return kernels::composed_cross_entropy(logits(hidden), to_device(labels, hidden.device()));
  const int64_t tokens = hidden.size(1);
  const auto device = hidden.device();
  const auto next = labels.narrow(1, 1, tokens - 1).flatten();  // position t predicts label t + 1
  auto kept = (next != -100).nonzero().squeeze(1);
  const auto targets = to_device(next.index_select(0, kept), device);
  const auto rows =
      hidden.narrow(1, 0, tokens - 1).reshape({-1, hidden.size(2)}).index_select(0, to_device(std::move(kept), device));
  const auto head = lm_head_.quantized ? kernels::dequantize(*lm_head_.quantized, hidden.scalar_type()) : head_weight();
  return kernels::linear_cross_entropy(rows, head, targets, chunk_tokens, language_model_.tied_gradient);
}

void LlavaModel::visit(const TensorVisitor& visitor) {
  const std::string root = "model.";
  if (parts_ == LlavaParts::kTower) return vision_tower_->visit(std::string(kTowerPrefix), visitor);
  language_model_.visit(has_vision() ? root + "language_model." : root, visitor);
  if (!config_.text.tie_word_embeddings) lm_head_.visit("lm_head", visitor);
  if (!has_vision()) return;
  if (vision_tower_) vision_tower_->visit(std::string(kTowerPrefix), visitor);
  for (size_t i = 0; i < projector_.size(); ++i)
    projector_[i].visit(root + "multi_modal_projector.linear_" + std::to_string(i + 1), visitor);
  if (image_newline_.defined()) visitor(root + "image_newline", image_newline_);
}

void LlavaModel::visit_linears(const LinearVisitor& visitor) {
  const std::string root = "model.";
  if (parts_ == LlavaParts::kTower) return vision_tower_->visit_linears(std::string(kTowerPrefix), visitor);
  language_model_.visit_linears(has_vision() ? root + "language_model." : root, visitor);
  if (!config_.text.tie_word_embeddings) visitor("lm_head", lm_head_);
  if (!has_vision()) return;
  if (vision_tower_) vision_tower_->visit_linears(std::string(kTowerPrefix), visitor);
  for (size_t i = 0; i < projector_.size(); ++i)
    visitor(root + "multi_modal_projector.linear_" + std::to_string(i + 1), projector_[i]);
}

void LlavaModel::stream_weight(const std::string& name, const Tensor& on_device, const Tensor& source) {
  const auto module = memory_module(name);
  auto& stream = module.starts_with("vision_tower.") ? vision_tower_->stream : language_model_.stream;
  if (!stream) stream = std::make_unique<WeightStream>();
  stream->add(static_cast<size_t>(std::stoll(module.substr(module.rfind('.') + 1))), module, on_device, source);
}

void LlavaModel::end_streaming() {
  visit([&](const std::string&, Tensor& tensor) {
    for (const auto* stream : {language_model_.stream.get(), vision_tower_ ? vision_tower_->stream.get() : nullptr})
      if (stream != nullptr) tensor = stream->source_of(tensor);
  });
  language_model_.stream.reset();
  if (vision_tower_) vision_tower_->stream.reset();
}

}  // namespace vlmtune
