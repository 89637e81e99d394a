// Vision transformer (Dosovitskiy et al. 2020, arXiv 2010.11929) as in CLIP, SigLIP, DINOv2 (Oquab et al. 2023, arXiv 2304.07193) and Qwen-VL
// (Bai et al. 2023, arXiv 2308.12966).
#pragma once
#include "lib/models/vit/config.h"
#include "lib/nn/attention.h"
#include "lib/nn/mlp.h"
#include "lib/nn/norm.h"
#include "lib/nn/patch_conv.h"

namespace vlmtune {

struct VitBlock {
  LayerNorm layer_norm1, layer_norm2;
  Attention self_attn;
  Mlp mlp;
  Tensor layer_scale1, layer_scale2;  // [D], DINOv2 only: factors of the two branches
};

/// A square of learned positions [n * n, D] stretched to side * side, bicubic in fp32.
Tensor resized_positions(const Tensor& table, int64_t side);

class Vit : public Tower {
 public:
  Vit(const VitConfig& config, int64_t num_layers);

  std::vector<Tensor> hidden_states(const Tensor& pixels, const std::vector<int64_t>& states,
                                    const RecomputePolicy& policy, bool training,
                                    WeightStream* stream = nullptr) const override;

  void visit(const std::string& prefix, const TensorVisitor& visitor) override;
  void visit_linears(const std::string& prefix, const LinearVisitor& visitor) override;
  torch::Device device() const override { return patch_embedding_.weight.device(); }

 private:
  Tensor embed(const Tensor& pixels) const;
  Tensor positions() const;  // [positions of the pictures, D]
  VitConfig config_;
  Tensor class_embedding_;     // [D] (DINOv2: [1, 1, D]); not SigLIP, Qwen-VL
  PatchConv patch_embedding_;  // with a bias but in CLIP and Qwen-VL
  Tensor position_embedding_;  // [positions, D] (DINOv2: [1, positions, D])
  LayerNorm pre_layernorm_;    // CLIP and Qwen-VL only
  LayerNorm last_layernorm_;   // DINOv2 only
  std::vector<VitBlock> layers_;
};

}  // namespace vlmtune
