// A convolution whose stride is the side of its kernel, as one matrix product: no work space, and the same code on every device.
#pragma once
#include "lib/nn/types.h"

namespace vlmtune {

struct PatchConv {
  Tensor weight, bias;  // [D, C, p, p], [D] or undefined

  PatchConv() = default;
  /// Shapes only, as Linear's.
  PatchConv(int64_t in_channels, int64_t out_channels, int64_t patch_size, bool with_bias);

  /// x [N, C, h, w] of any strides -> [N, h / p, w / p, D] in x's type; what is left over at the right and below is dropped.
  Tensor forward(const Tensor& x) const;
  void visit(const std::string& name, const TensorVisitor& visitor);
};

}  // namespace vlmtune
