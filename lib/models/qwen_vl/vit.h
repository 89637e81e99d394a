// The vision transformers of Qwen2-VL (Wang et al. 2024, arXiv 2409.12191), Qwen2.5-VL (Bai et al. 2025, arXiv 2502.13923) and
// Qwen3-VL: pictures of any size, rotary positions on two axes; windows; learned positions stretched over the picture.
#pragma once
#include <variant>

#include "lib/models/qwen_vl/patches.h"
#include "lib/nn/linear.h"
#include "lib/nn/mlp.h"
#include "lib/nn/norm.h"
#include "lib/nn/rope.h"

namespace vlmtune {

using VisionNorm = std::variant<LayerNorm, RmsNorm>;
VisionNorm vision_norm(const QwenVlVisionConfig& config, int64_t size);
Tensor normalise(const VisionNorm& norm, const Tensor& x);
void visit_norm(VisionNorm& norm, const std::string& name, const TensorVisitor& visitor);

struct QwenVitBlock {
  VisionNorm norm1, norm2;
  Linear qkv, proj;
  std::variant<Mlp, GatedMlp> mlp;
};

class QwenVit {
 public:
  explicit QwenVit(const QwenVlVisionConfig& config);

  /// pixels of a picture, or of a time of a video, [1 or temporal, C, h, w] -> [states * P, D]: what leaves the last block, then what leaves the deepstack blocks, one after the
  /// other; patches in the order of blockwise_patches. Runs in `pixels`' type.
  Tensor forward(const Tensor& pixels, const RecomputePolicy& policy, bool training, WeightStream* stream) const;

  void visit(const std::string& prefix, const TensorVisitor& visitor);
  void visit_linears(const std::string& prefix, const LinearVisitor& visitor);
  torch::Device device() const { return patch_weight_.device(); }

 private:
  Tensor embed(const Tensor& pixels, ImageSize grid) const;
  Tensor attend(const QwenVitBlock& block, const Tensor& x, const RopeTables& rope,
                const std::vector<Windows::Group>& windows, bool training) const;

  QwenVlVisionConfig config_;
  Tensor patch_weight_, patch_bias_;  // [D, C, temporal, p, p], [D]
  Tensor position_table_;             // [side * side, D]
  std::vector<QwenVitBlock> blocks_;
};

}  // namespace vlmtune
