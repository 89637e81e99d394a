// ConvNeXt-V2 (Woo et al. 2023, arXiv 2301.00808) as in transformers. Grids of features lie channels last.
#pragma once
#include "lib/models/convnext/config.h"
#include "lib/nn/linear.h"
#include "lib/nn/norm.h"
#include "lib/nn/patch_conv.h"

namespace vlmtune {

struct ConvNextBlock {
  Tensor dwconv_weight, dwconv_bias;  // [D, 1, 7, 7], [D]
  LayerNorm layernorm;
  Linear pwconv1, pwconv2;
  Tensor grn_weight, grn_bias;  // [1, 1, 1, 4 D]
};

struct ConvNextStage {
  LayerNorm downsampling_norm;  // not in the first stage
  PatchConv downsampling;
  std::vector<ConvNextBlock> layers;
};

class ConvNext : public Tower {
 public:
  ConvNext(const ConvNextConfig& config, int64_t num_stages);

  std::vector<Tensor> hidden_states(const Tensor& pixels, const std::vector<int64_t>& states,
                                    const RecomputePolicy& policy, bool training,
                                    WeightStream* stream = nullptr) const override;

  void visit(const std::string& prefix, const TensorVisitor& visitor) override;
  void visit_linears(const std::string& prefix, const LinearVisitor& visitor) override;
  torch::Device device() const override { return patch_embeddings_.weight.device(); }

 private:
  Tensor run_layer(const ConvNextBlock& layer, int64_t number, const Tensor& x, const RecomputePolicy& policy,
                   const std::string& module, bool training) const;

  ConvNextConfig config_;
  PatchConv patch_embeddings_;
  LayerNorm layernorm_;
  std::vector<ConvNextStage> stages_;
};

}  // namespace vlmtune
