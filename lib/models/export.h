// Writes a whole model in the Hugging Face layout, readable by every transformers version that knows LLaVA.
#pragma once
#include <filesystem>
#include <vector>

#include "lib/models/weights.h"

namespace vlmtune {

/// Writes dir/model.safetensors: the model's tensors in the types of the files they came from (new ones, and those that the
/// file holds in few bits, in `fresh_type`), and what the sources hold beside them (a tower's unused layers). Layers in few
/// bits are written as stored_quantization.h says. LoRA must be merged before. The embedding and the head get at least
/// `vocab_rows` rows, the new ones holding the mean of the old. Errors: io_error; usage_error for a head in few bits that
/// would need more rows.
void export_weights(VlmModel& model, const std::vector<WeightSource>& sources, const std::filesystem::path& dir,
                    torch::ScalarType fresh_type, int64_t vocab_rows);

}  // namespace vlmtune
