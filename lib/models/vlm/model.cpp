#include "lib/models/vlm/model.h"

#include "kernels/composed.h"
#include "kernels/linear.h"
#include "kernels/linear_cross_entropy.h"
#include "lib/base/errors.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"
#include "lib/models/vlm/positions.h"

namespace vlmtune {

VlmModel::VlmModel(const VlmConfig& config, VlmParts parts)
    : config_(config), parts_(parts), language_model_(config.text) {
  const auto& text = config_.text;
  if (!text.tie_word_embeddings) lm_head_ = Linear(text.hidden_size, text.vocab_size, false);
  if (config_.vision) vision_ = config_.vision->build(parts);
  if (config_.similarity_head && parts != VlmParts::kTower) similarity_head_.emplace(text.hidden_size);
}

bool VlmModel::leaves_out(const std::string& name) const {
  const bool of_tower = component_of(name) == Component::kVisionTower;
  return parts_ == VlmParts::kTower ? !of_tower : parts_ == VlmParts::kWithoutTower && of_tower;
}

Tensor VlmModel::picture_features(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const {
  const MemoryScope scope(MemoryCategory::kVisionActivations);
  return vision_->tower(pixels, type, mode);
}

ImageFeatures VlmModel::encode_images(const ImageInputs& images, torch::ScalarType type,
                                      const TrainingMode& mode) const {
  VLMTUNE_CHECK(vision_ != nullptr, "pictures for a model without a vision part");
  const MemoryScope scope(MemoryCategory::kVisionActivations);
  const auto run_tower = [&] {
    std::vector<Tensor> parts;
    for (const auto& pixels : images.pixels) parts.push_back(vision_->tower(pixels, type, mode));
    return parts.size() == 1 ? parts[0] : torch::cat(parts, 0);
  };
  return vision_->project(
      images.features.defined() ? to_device(images.features, language_model_.embed_tokens.device()) : run_tower(),
      images.shapes);
}

Embedded VlmModel::embed(const Tensor& ids, const ImageInputs& images, torch::ScalarType type,
                         const TrainingMode& mode) const {
  const MemoryScope scope(MemoryCategory::kActivations);
  const auto embeds = language_model_.embed(ids, type);  // [B, T, D]
  auto slots = is_slot(ids.flatten()).nonzero().squeeze(1);
  if (images.shapes.empty()) {
    VLMTUNE_CHECK(slots.numel() == 0, "{} image slots and no image", slots.numel());
    return {embeds};
  }
  auto features = encode_images(images, type, mode);
  VLMTUNE_CHECK(features.tokens.size(0) == slots.numel(), "{} image features for {} image slots",
                features.tokens.size(0), slots.numel());
  slots = to_device(std::move(slots), embeds.device());
  const auto tokens = embeds.flatten(0, 1).index_copy(0, slots, features.tokens).view(embeds.sizes());
  return {tokens, {slots, std::move(features.deepstack)}};
}

Tensor VlmModel::is_slot(const Tensor& ids) const {
  const auto images = ids == config_.image_token_id;
  return config_.video_token_id < 0 ? images : images.logical_or(ids == config_.video_token_id);
}

Tensor VlmModel::positions(const Tensor& ids, const std::vector<PictureShape>& pictures,
                           const std::vector<int64_t>& left_padding, const Tensor& first_keys) const {
  std::vector<TokenGrid> grids;
  for (const auto& picture : pictures)
    if (const auto grid = config_.vision->token_grid(picture)) grids.push_back(*grid);
  if (grids.empty()) return token_positions(ids.size(1), left_padding, first_keys);
  return picture_positions(is_slot(ids), grids, left_padding, first_keys);
}

Tensor VlmModel::logits(const Tensor& hidden) const {
  const MemoryScope scope(MemoryCategory::kLogits);
  const ModuleScope module("lm_head");
  if (lm_head_.quantized) return kernels::quantized_linear(hidden, lm_head_.quantized, {});
  return kernels::linear(hidden, head_weight().to(hidden.scalar_type()), {});
}

Tensor VlmModel::loss_sum(const Tensor& hidden, const Tensor& labels, int64_t chunk_tokens) const {
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

void VlmModel::visit(const TensorVisitor& visitor) {
  if (parts_ != VlmParts::kTower) {
    language_model_.visit(language_prefix(), visitor);
    if (!config_.text.tie_word_embeddings) lm_head_.visit("lm_head", visitor);
  }
  if (vision_) vision_->visit(visitor);
  if (similarity_head_) similarity_head_->visit(visitor);
}

void VlmModel::visit_linears(const LinearVisitor& visitor) {
  if (parts_ != VlmParts::kTower) {
    language_model_.visit_linears(language_prefix(), visitor);
    if (!config_.text.tie_word_embeddings) visitor("lm_head", lm_head_);
  }
  if (vision_) vision_->visit_linears(visitor);
}

void VlmModel::stream_weight(const std::string& name, const Tensor& on_device, const Tensor& source, bool in_file) {
  const auto module = memory_module(name);
  auto& stream = component_of(name) == Component::kVisionTower ? vision_->stream : language_model_.stream;
  if (!stream) stream = std::make_unique<WeightStream>(in_file);
  stream->add(static_cast<size_t>(std::stoll(module.substr(module.rfind('.') + 1))), module, on_device, source);
}

void VlmModel::end_streaming() {
  const auto end = [&](Tensor& tensor) {
    for (const auto* stream : {language_model_.stream.get(), vision_ ? vision_->stream.get() : nullptr})
      if (stream != nullptr) tensor = stream->source_of(tensor);
  };
  visit([&](const std::string&, Tensor& tensor) { end(tensor); });
  visit_linears([&](const std::string&, Linear& linear) {
    if (linear.quantized) end(linear.quantized->codes);
  });
  language_model_.stream.reset();
  if (vision_) vision_->stream.reset();
}

}  // namespace vlmtune
