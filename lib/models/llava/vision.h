// LLaVA (Liu et al. 2023, arXiv 2304.08485, 2310.03744), LLaVA-NeXT and LLaVA-OneVision (Li et al. 2024, arXiv 2408.03326): hidden
// states of a tower, projected; the latter two put the tiles of a picture together again and end its rows with a learned newline.
#pragma once
#include "lib/models/llava/config.h"
#include "lib/nn/linear.h"

namespace vlmtune {

class LlavaVision : public Vision {
 public:
  LlavaVision(const LlavaVisionConfig& config, VlmParts parts);

  Tensor tower(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const override;
  ImageFeatures project(const Tensor& features, const std::vector<PictureShape>& shapes) const override;
  void visit(const TensorVisitor& visitor) override;
  void visit_linears(const LinearVisitor& visitor) override;

 private:
  /// Of a picture's features [h, w, D], about as many as OneVision keeps.
  Tensor scaled_down(const Tensor& grid) const;
  /// The features of a video's frames [frames, P, D], a quarter of them, and one newline.
  Tensor pack_video(const Tensor& frames) const;
  Tensor pack_next(const Tensor& tiles, ImageSize original) const;

  LlavaVisionConfig config_;
  std::unique_ptr<Tower> tower_;
  std::vector<Linear> projector_;
  Tensor image_newline_;  // [D], LLaVA-NeXT
};

}  // namespace vlmtune
