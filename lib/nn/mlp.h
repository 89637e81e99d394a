// Feed-forward blocks: gated (Llama, Qwen2) and plain two-layer (CLIP, SigLIP).
#pragma once
#include "lib/nn/activation.h"
#include "lib/nn/linear.h"

namespace vlmtune {

/// What a family calls the layers of its gated MLP.
struct GatedMlpNames {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// down(act(gate(x)) * up(x)); SwiGLU when act is silu (Shazeer 2020, arXiv 2002.05202).
struct GatedMlp {
  Linear gate_proj, up_proj, down_proj;
  Activation activation = Activation::kSilu;

  GatedMlp() = default;
  GatedMlp(int64_t hidden_size, int64_t intermediate_size, bool bias, Activation activation);
  Tensor forward(const Tensor& x, bool training) const;  // [B, T, D] -> [B, T, D]
  void visit_linears(const std::string& name, const LinearVisitor& visitor, const GatedMlpNames& names = {});
};

/// fc2(act(fc1(x))).
struct Mlp {
  Linear fc1, fc2;
  Activation activation = Activation::kGelu;

  Mlp() = default;
  Mlp(int64_t hidden_size, int64_t intermediate_size, Activation activation);
  Tensor forward(const Tensor& x, bool training) const;  // [B, T, D] -> [B, T, D]
  void visit_linears(const std::string& name, const LinearVisitor& visitor);
};

}  // namespace vlmtune
