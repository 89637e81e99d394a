#include "lib/nn/patch_conv.h"

#include "kernels/linear.h"
#include "lib/nn/linear.h"

namespace vlmtune {

PatchConv::PatchConv(int64_t in_channels, int64_t out_channels, int64_t patch_size, bool with_bias)
    : weight(declared({out_channels, in_channels, patch_size, patch_size})) {
  if (with_bias) bias = declared({out_channels});
}

Tensor PatchConv::forward(const Tensor& x) const {
  const auto type = x.scalar_type();
  const int64_t images = x.size(0), channels = weight.size(1), p = weight.size(2);
  const int64_t rows = x.size(2) / p, columns = x.size(3) / p;
  const auto patches = x.narrow(2, 0, rows * p)
                           .narrow(3, 0, columns * p)
                           .view({images, channels, rows, p, columns, p})
                           .permute({0, 2, 4, 1, 3, 5})
                           .reshape({images, rows, columns, channels * p * p});
  return kernels::linear(patches, weight.to(type).view({weight.size(0), -1}), bias.defined() ? bias.to(type) : bias);
}

void PatchConv::visit(const std::string& name, const TensorVisitor& visitor) {
  visitor(name + ".weight", weight);
  if (bias.defined()) visitor(name + ".bias", bias);
}

}  // namespace vlmtune
