// Weights in few bits as checkpoints hold them. bitsandbytes' layout of NF4 (https://github.com/bitsandbytes-foundation/
// bitsandbytes, functional.py, QuantState.as_dict), and ours of the same style for int4 and int8, of a layer X:
//
//     X.weight                   uint8 [codes / 2, 1], the first code of a byte in its high half; int8: [out, in]
//     X.weight.absmax            largest magnitudes of blocks: fp32 [blocks]; double_quant: uint8 codes of them, less an offset
//     X.weight.quant_map         fp32 [16], the values of 4-bit codes
//     X.weight.nested_absmax     double_quant: fp32, one for 256 blocks
//     X.weight.nested_quant_map  double_quant: fp32 [256], bitsandbytes' dynamic 8-bit numbers
//     X.weight.quant_state.T     uint8, JSON: quant_type, blocksize, shape, dtype, nested_blocksize, nested_dtype, nested_offset;
//                                T is bitsandbytes__nf4, vlmtune__int4 or vlmtune__int8
//
// LLM.int8() (Dettmers et al. 2022, arXiv 2208.07339) holds X.weight int8 [out, in] and X.SCB fp32 [out], the rows' largest
// magnitudes. Activations are not quantised here, as they are there.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/quantized.h"
#include "lib/checkpoint/checkpoint.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/models/vlm/model.h"

namespace vlmtune {

/// What /quantization_config of a config.json says of the weights beside it.
struct StoredQuantization {
  kernels::QuantType type = kernels::QuantType::kNf4;
  bool double_quant = false;
  int64_t block = kernels::kQuantBlock;   ///< 0: a row
  std::vector<std::string> skip_modules;  ///< linear layers that are whole: beginnings and ends of names

  bool applies(const std::string& module) const;
  /// A weight like those of the file, without values.
  kernels::QuantizedPtr stand_in(int64_t out, int64_t in, torch::Device device) const;
};

/// Reads dir/config.json; nothing where all weights are whole. Errors: input_error that names a method that is not read.
std::optional<StoredQuantization> read_stored_quantization(const std::filesystem::path& dir);

/// Whether the tensor holds codes instead of values.
bool holds_codes(const Checkpoint& checkpoint, const std::string& weight);

/// The weight of that name, of the shape [out, in] that its file says; its tensors look into the mapped file. Errors:
/// input_error that names the file and the tensor that is missing or does not fit.
kernels::QuantizedPtr read_quantized(const Checkpoint& checkpoint, const std::string& weight);

/// What may follow a layer's name in the names of the tensors beside its "weight".
std::span<const char* const> quantized_parts();

/// Adds the tensors of a weight called `name`; `type` is the one that other programs make it whole in.
void append_quantized(const std::string& name, const kernels::QuantizedPtr& weight, torch::ScalarType type,
                      std::vector<TensorToWrite>& tensors);

/// /quantization_config for the model as it stands, as JSON; empty when all its weights are whole. What a tower's file holds
/// beside the model's layers is taken to be whole.
std::string quantization_config(VlmModel& model, torch::ScalarType type);

}  // namespace vlmtune
