// Normalisation layers; the statistics are computed in fp32 whatever the input's type.
#pragma once
#include "lib/nn/types.h"

namespace vlmtune {

/// Root mean square norm (Zhang & Sennrich 2019, arXiv 1910.07467) as in Llama: normalise in fp32, cast, then scale.
struct RmsNorm {
  Tensor weight;  // [D]
  double eps = 1e-6;

  RmsNorm() = default;
  RmsNorm(int64_t size, double epsilon);
  Tensor forward(const Tensor& x) const;  // [..., D] -> [..., D]
  void visit(const std::string& name, const TensorVisitor& visitor);
};

struct LayerNorm {
  Tensor weight, bias;  // [D]
  double eps = 1e-5;

  LayerNorm() = default;
  LayerNorm(int64_t size, double epsilon);
  Tensor forward(const Tensor& x) const;  // [..., D] -> [..., D]
  void visit(const std::string& name, const TensorVisitor& visitor);
};

}  // namespace vlmtune
