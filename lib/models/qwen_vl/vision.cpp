#include "lib/models/qwen_vl/vision.h"

#include "lib/base/errors.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"

namespace vlmtune {
namespace {

constexpr const char* kPrefix = "model.visual.";

}  // namespace

PatchMerger::PatchMerger(const QwenVlVisionConfig& c, bool tokens)
    : norm(vision_norm(c, tokens ? c.hidden_size * c.patches_per_token() : c.hidden_size)),
      fc1(c.hidden_size * c.patches_per_token(), c.hidden_size * c.patches_per_token(), true),
      fc2(c.hidden_size * c.patches_per_token(), c.out_hidden_size, true),
      normalises_tokens(tokens) {}

Tensor PatchMerger::forward(const Tensor& patches) const {
  const auto tokens = normalises_tokens ? normalise(norm, patches.reshape({-1, fc1.in_features}))
                                        : normalise(norm, patches).view({-1, fc1.in_features});
  return fc2.forward(torch::gelu(fc1.forward(tokens)));
}

QwenVlVision::QwenVlVision(const QwenVlVisionConfig& config, VlmParts parts) : config_(config) {
  if (parts != VlmParts::kWithoutTower) vit_ = std::make_unique<QwenVit>(config);
  if (parts == VlmParts::kTower) return;
  mergers_.emplace_back(config, false);
  for (size_t i = 0; i < config.deepstack_blocks.size(); ++i) mergers_.emplace_back(config, true);
}

Tensor QwenVlVision::tower(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const {
  VLMTUNE_CHECK(vit_ != nullptr, "pixels for a model without vision tower");
  const auto cast = [&] {
    const MemoryScope inputs(MemoryCategory::kInputs);
    return pixels.to(type);
  }();
  return vit_->forward(to_device(cast, vit_->device()), mode.vision_checkpointing, mode.training, stream.get());
}

ImageFeatures QwenVlVision::project(const Tensor& features, const std::vector<PictureShape>&) const {
  const ModuleScope module("multi_modal_projector");
  const auto states = features.split(config_.hidden_size, -1);
  ImageFeatures result{mergers_[0].forward(states[0].contiguous())};
  for (size_t i = 1; i < mergers_.size(); ++i) result.deepstack.push_back(mergers_[i].forward(states[i]));
  return result;
}

std::string QwenVlVision::merger_name(size_t index) const {
  return index == 0 ? fmt::format("{}merger", kPrefix) : fmt::format("{}deepstack_merger_list.{}", kPrefix, index - 1);
}

void QwenVlVision::visit(const TensorVisitor& visitor) {
  if (vit_) vit_->visit(kPrefix, visitor);
  for (size_t i = 0; i < mergers_.size(); ++i) {
    const auto name = merger_name(i);
    visit_norm(mergers_[i].norm, fmt::format("{}.{}", name, config_.names->merger_norm), visitor);
    mergers_[i].fc1.visit(fmt::format("{}.{}", name, config_.names->merger_fc[0]), visitor);
    mergers_[i].fc2.visit(fmt::format("{}.{}", name, config_.names->merger_fc[1]), visitor);
  }
}

void QwenVlVision::visit_linears(const LinearVisitor& visitor) {
  if (vit_) vit_->visit_linears(kPrefix, visitor);
  for (size_t i = 0; i < mergers_.size(); ++i) {
    visitor(fmt::format("{}.{}", merger_name(i), config_.names->merger_fc[0]), mergers_[i].fc1);
    visitor(fmt::format("{}.{}", merger_name(i), config_.names->merger_fc[1]), mergers_[i].fc2);
  }
}

}  // namespace vlmtune
