// Weights in 4 or 8 bits: codes of blocks of neighbours that share a scale (Dettmers et al. 2023, arXiv 2305.14314).
#pragma once
#include <torch/torch.h>

namespace vlmtune::kernels {

enum class QuantType { kNf4, kInt4, kInt8 };

constexpr int64_t kQuantBlock = 64;   // neighbours that share a scale in what `quantize` makes
constexpr int64_t kScaleBlock = 256;  // scales that share one, quantised themselves

/// A frozen weight [out, in] in few bits. NF4's codes and scales are those of bitsandbytes.
struct QuantizedWeight : torch::CustomClassHolder {
  QuantType type = QuantType::kNf4;
  int64_t out = 0, in = 0;
  int64_t block = kQuantBlock;  ///< neighbours of the flattened weight that share a scale
  torch::Tensor codes;          ///< 4 bits: uint8 [ceil(out * in / 2)]; 8 bits: int8 [out * in]
  torch::Tensor scales;  ///< largest magnitude of a block: fp32 [blocks]; double: uint8 codes of it, less `offset`
  torch::Tensor nested_scales;  ///< double: fp32, one for kScaleBlock scales; else undefined
  torch::Tensor offset;         ///< double: fp32 [], the mean scale; else undefined

  int64_t numel() const { return out * in; }
  int64_t blocks() const { return (numel() + block - 1) / block; }
};
using QuantizedPtr = c10::intrusive_ptr<QuantizedWeight>;

/// What `quantize` fills in: a weight [out, in] with memory for its codes and scales, and no values.
QuantizedPtr empty_quantized(int64_t out, int64_t in, QuantType type, bool double_quant, int64_t block,
                             torch::Device device);

/// Quantises weight [out, in], of any floating type; `double_quant` quantises the scales too.
QuantizedPtr quantize(const torch::Tensor& weight, QuantType type, bool double_quant);

/// The values of codes of 4 bits, fp32 [16], before a block's scale.
torch::Tensor values_of_codes(QuantType type);

/// A part of the weight: [rows, columns] from the given places on.
struct WeightPart {
  int64_t first_row = 0, rows = 0, first_column = 0, columns = 0;
};
torch::Tensor dequantize(const QuantizedWeight& weight, const WeightPart& part, torch::ScalarType type);
torch::Tensor dequantize(const QuantizedWeight& weight, torch::ScalarType type);

/// x weightᵀ + bias [..., out] for x [..., in], without a graph; a part of the weight exists in x's type at a time.
torch::Tensor quantized_product(const torch::Tensor& x, const QuantizedWeight& weight, const torch::Tensor& bias);
/// dy weight [..., in] for dy [..., out], without a graph; a part of the weight exists in dy's type at a time.
torch::Tensor quantized_input_gradient(const torch::Tensor& dy, const QuantizedWeight& weight);

/// x weightᵀ + bias, differentiable in x.
torch::Tensor quantized_linear(const torch::Tensor& x, const QuantizedPtr& weight, const torch::Tensor& bias);

/// For an op that keeps its weight for backward: a value to save, and the weight in it (null in, null out).
c10::IValue capsule_of(const QuantizedPtr& weight);
QuantizedPtr quantized_in(const c10::IValue& saved);

}  // namespace vlmtune::kernels
