// Vision transformer (Dosovitskiy et al. 2020, arXiv 2010.11929) as in CLIP and SigLIP.
#pragma once
#include "lib/models/vit/config.h"
#include "lib/nn/attention.h"
#include "lib/nn/mlp.h"
#include "lib/nn/norm.h"
#include "lib/nn/recompute.h"
#include "lib/nn/weight_stream.h"

namespace vlmtune {

struct VitBlock {
  LayerNorm layer_norm1, layer_norm2;
  Attention self_attn;
  Mlp mlp;
};

class Vit {
 public:
  /// Only the first `num_layers` blocks are made: those after the selected hidden state are never run, so never loaded.
  Vit(const VitConfig& config, int64_t num_layers);

  /// pixels [N, C, S, S] -> the hidden states asked for, each [N, 1 + P, D] (SigLIP: [N, P, D]). State 0 is what enters the
  /// first block, state i what leaves block i. Runs in `pixels`' type. `stream` is of the blocks, if they are not kept.
  std::vector<Tensor> hidden_states(const Tensor& pixels, const std::vector<int64_t>& states,
                                    const RecomputePolicy& policy, bool training, WeightStream* stream = nullptr) const;

  void visit(const std::string& prefix, const TensorVisitor& visitor);
  void visit_linears(const std::string& prefix, const LinearVisitor& visitor);
  const VitConfig& config() const { return config_; }
  torch::Device device() const { return patch_weight_.device(); }

 private:
  Tensor embed(const Tensor& pixels) const;
  VitConfig config_;
  Tensor class_embedding_;            // [D], CLIP only
  Tensor patch_weight_, patch_bias_;  // [D, C, p, p], [D] (SigLIP only)
  Tensor position_embedding_;         // [positions, D]
  LayerNorm pre_layernorm_;           // CLIP only
  std::vector<VitBlock> layers_;
};

}  // namespace vlmtune
