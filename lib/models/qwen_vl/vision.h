// Qwen-VL's way to pictures: its ViT, then each block of patches merged into one token; with deepstack, several states of the
// ViT, each with a merger of its own.
#pragma once
#include "lib/models/qwen_vl/vit.h"

namespace vlmtune {

/// fc2(gelu(fc1(patches of a token side by side))), the patches normalised before, or all of a token's after they meet.
struct PatchMerger {
  VisionNorm norm;
  Linear fc1, fc2;
  bool normalises_tokens = false;

  PatchMerger(const QwenVlVisionConfig& config, bool normalises_tokens);
  Tensor forward(const Tensor& patches) const;  // [P, F] -> [P / merge^2, D]
};

class QwenVlVision : public Vision {
 public:
  QwenVlVision(const QwenVlVisionConfig& config, VlmParts parts);

  Tensor tower(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const override;
  ImageFeatures project(const Tensor& features, const std::vector<PictureShape>& shapes) const override;
  void visit(const TensorVisitor& visitor) override;
  void visit_linears(const LinearVisitor& visitor) override;

 private:
  std::string merger_name(size_t index) const;

  QwenVlVisionConfig config_;
  std::unique_ptr<QwenVit> vit_;
  std::vector<PatchMerger> mergers_;  ///< of the last state, then of the deepstack blocks
};

}  // namespace vlmtune
