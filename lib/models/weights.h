// Puts a checkpoint's tensors into a model: strict about names and shapes, without holding a tensor twice.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/quantized.h"
#include "lib/checkpoint/checkpoint.h"
#include "lib/models/names.h"
#include "lib/models/stored_quantization.h"
#include "lib/models/vlm/model.h"

namespace vlmtune {

struct WeightSource {
  Checkpoint checkpoint;
  PartKind kind = PartKind::kWhole;
};

/// Which frozen linear layers are held in few bits, and how.
struct QuantizationOptions {
  std::function<bool(const std::string& module)> applies = [](const std::string&) { return false; };
  kernels::QuantType type = kernels::QuantType::kNf4;
  bool double_quant = true;
};

struct WeightOptions {
  /// Whether frozen tensors may stay in the mapped file; else their memory comes and goes with the model.
  bool in_place = true;
  /// Where the model computes. On the meta device no file is read, only its header.
  torch::Device device = torch::kCPU;
  /// Type of tensors that stay as they are. A frozen tensor that has this type in the file is used straight from the
  /// mapped file, without a copy.
  torch::ScalarType frozen_type = torch::kFloat;
  /// Type of tensors that will be trained; these are always copies.
  torch::ScalarType trained_type = torch::kFloat;
  QuantizationOptions quantization;
  /// Frozen tensors of blocks that come and go with their block (WeightStream). Where the CPU computes they have the type
  /// that the file has.
  std::function<bool(const std::string& name)> is_streamed = [](const std::string&) { return false; };
  /// Whether streamed tensors of a device with memory of its own are kept on the host, or read from the file each time.
  bool streamed_from_host = false;
  std::function<bool(const std::string& name)> is_trained = [](const std::string&) { return false; };
  /// For a dry run without files: the type that missing tensors have in the file that is not there.
  std::optional<torch::ScalarType> stand_in_type;
  /// ... and which of its layers are in few bits.
  std::optional<StoredQuantization> stand_in_quantization;
  /// A tensor that no source holds: returns its values (fp32), or nothing, which is an error.
  std::function<std::optional<Tensor>(const std::string& name, torch::IntArrayRef shape)> fresh =
      [](const std::string&, torch::IntArrayRef) { return std::nullopt; };
};

/// Linear layers are quantised one at a time as they are read, unless the file holds them in few bits; those that are
/// trained are made whole. Tensors that are used in the mapped files count in the device's account as well. Errors:
/// input_error that names the tensor that is missing, unexpected, of another shape or of a type that cannot be computed with.
void load_weights(VlmModel& model, const std::vector<WeightSource>& sources, const WeightOptions& options);

/// Initial values of a new projector's tensor: U(-1/sqrt(fan in), 1/sqrt(fan in)), torch.nn.Linear's own, from the seed
/// and the tensor's name alone. Nothing for tensors that are not the projector's.
std::optional<Tensor> fresh_projector_tensor(const std::string& name, torch::IntArrayRef shape, int64_t seed,
                                             const VlmConfig& config, torch::Device device = torch::kCPU);

}  // namespace vlmtune
