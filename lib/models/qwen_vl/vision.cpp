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
  const auto tokens = normalises_tokens ? normalise(norm, patches.view({-1, fc1.in_features}))
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
  const auto there = to_device(cast, vit_->device());
  const int64_t frames = std::min(there.size(0), config_.temporal_patch_size);
  std::vector<Tensor> times;
  for (int64_t begin = 0; begin < there.size(0); begin += frames)
    times.push_back(
        vit_->forward(there.narrow(0, begin, frames), mode.vision_checkpointing, mode.training, stream.get()));
  return times.size() == 1 ? times[0] : torch::cat(times, 0);
}

ImageFeatures QwenVlVision::project(const Tensor& features, const std::vector<PictureShape>& shapes) const {
  const ModuleScope module("multi_modal_projector");
  if (mergers_.size() == 1) return {mergers_[0].forward(features)};
  std::vector<int64_t> rows;  // of each state of each time of each picture
  for (const auto& shape : shapes) {
    const int64_t times = config_.times(shape), tokens = config_.image_tokens(shape) / times;
    rows.insert(rows.end(), mergers_.size() * static_cast<size_t>(times), tokens * config_.patches_per_token());
  }
  const auto parts = features.split_with_sizes(rows, 0);
  std::vector<Tensor> merged;
  for (size_t state = 0; state < mergers_.size(); ++state) {
    std::vector<Tensor> of_times;
    for (size_t i = state; i < parts.size(); i += mergers_.size()) of_times.push_back(parts[i]);
    merged.push_back(mergers_[state].forward(of_times.size() == 1 ? of_times[0] : torch::cat(of_times, 0)));
  }
  return {merged[0], {merged.begin() + 1, merged.end()}};
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
