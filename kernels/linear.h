// y = x weightᵀ + bias.
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

/// x [..., in], weight [out, in], bias [out] or undefined, all of one type -> [..., out]. Without gradients and for a few
/// rows (decoding) the CPU reads each weight once; otherwise it is one matrix product. A frozen weight keeps no x for
/// backward.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

/// The same without a graph, from a weight of any strides: the product that `linear` and its gradients are made of. On the CPU, fp32 goes to oneDNN, which LibTorch itself uses for bf16 only, and fp16 is computed in
/// fp32, since few processors multiply it.
torch::Tensor linear_product(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias = {});

}  // namespace vlmtune::kernels
