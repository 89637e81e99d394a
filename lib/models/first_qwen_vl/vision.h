// The first Qwen-VL's way to pictures (Bai et al. 2023, arXiv 2308.12966): the last state of its ViT, a resampler, a last norm
// and projection.
#pragma once
#include "lib/models/first_qwen_vl/config.h"
#include "lib/models/vit/model.h"

namespace vlmtune {

/// Learned queries that look at the patches of a picture. Positions are added to queries and keys, not to values.
struct Resampler {
  int64_t num_heads = 0;
  Tensor query, pos_embed;              // [Q, D] each
  Linear kv_proj, out_proj;             // from the tower's width to D, from D to D
  Tensor in_proj_weight, in_proj_bias;  // [3 * D, D], [3 * D]: queries, keys, values
  LayerNorm ln_q, ln_kv;

  Resampler() = default;
  explicit Resampler(const FirstQwenVlVisionConfig& config);
  Tensor forward(const Tensor& patches) const;  // [N, P, width] -> [N, Q, D]
  void visit(const std::string& name, const TensorVisitor& visitor);
  void visit_linears(const std::string& name, const LinearVisitor& visitor);
};

class FirstQwenVlVision : public Vision {
 public:
  FirstQwenVlVision(const FirstQwenVlVisionConfig& config, VlmParts parts);

  Tensor tower(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const override;
  ImageFeatures project(const Tensor& features, const std::vector<PictureShape>& shapes) const override;
  void visit(const TensorVisitor& visitor) override;
  void visit_linears(const LinearVisitor& visitor) override;

 private:
  FirstQwenVlVisionConfig config_;
  std::unique_ptr<Vit> vit_;
  std::optional<Resampler> resampler_;
  // Behind the resampler, but frozen and trained with the tower, as the published trainer has it.
  LayerNorm ln_post_;
  Tensor proj_;  // [D, D], from rows to columns
};

}  // namespace vlmtune
