#include "lib/models/export.h"

#include "lib/base/errors.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// llava-hf's spelling, which transformers has read since LLaVA was added to it.
std::string published_name(const std::string& name, bool has_vision) {
  struct Rename {
    std::string_view from, to;
  };
  static constexpr Rename kRenames[] = {{"model.language_model.", "language_model.model."},
                                        {"lm_head.", "language_model.lm_head."},
                                        {"model.vision_tower.", "vision_tower.vision_model."},
                                        {"model.multi_modal_projector.", "multi_modal_projector."},
                                        {"model.image_newline", "image_newline"}};
  if (has_vision)
    for (const auto& rename : kRenames)
      if (name.starts_with(rename.from)) return std::string(rename.to) + name.substr(rename.from.size());
  return name;
}

Tensor with_rows(const Tensor& matrix, int64_t rows) {
  if (matrix.size(0) >= rows) return matrix;
  const auto mean = matrix.to(torch::kFloat).mean(0, true).to(matrix.scalar_type());
  return torch::cat({matrix, mean.expand({rows - matrix.size(0), -1})}, 0);
}

bool is_vocabulary(const std::string& name) {
  return name.ends_with("embed_tokens.weight") || name == "lm_head.weight";
}

}  // namespace

void export_weights(LlavaModel& model, const std::vector<WeightSource>& sources, const fs::path& dir,
                    torch::ScalarType fresh_type, int64_t vocab_rows) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, std::pair<const WeightSource*, std::string>> stored;
  for (const auto& source : sources)
    for (const auto& name : source.checkpoint.names())
      stored[canonical_tensor_name(name, source.kind)] = {&source, name};
  std::vector<TensorToWrite> tensors;
  model.visit([&](const std::string& name, Tensor& tensor) {
    VLMTUNE_CHECK(name.find(".lora_") == std::string::npos, "{} is not merged", name);
    const auto at = stored.find(name);
    auto type = fresh_type;
    if (at != stored.end()) {
      type = *dtype_from_safetensors(at->second.first->checkpoint.entry(at->second.second).dtype);
      stored.erase(at);
    }
    auto shape = tensor.sizes().vec();
    const int64_t rows = is_vocabulary(name) ? std::max(vocab_rows, shape[0]) : shape[0];
    shape[0] = rows;
    tensors.push_back({published_name(name, model.has_vision()), type, shape,
                       [tensor, type, rows] { return with_rows(tensor.detach().to(type), rows); }});
  });
  for (const auto& [name, where] : stored) {  // what the model has no use for: buffers stay behind, layers come along
    if (!name.starts_with("model.vision_tower.") || name.ends_with(".position_ids")) continue;
    const auto& checkpoint = where.first->checkpoint;
    const auto& entry = checkpoint.entry(where.second);
    tensors.push_back({published_name(name, model.has_vision()), *dtype_from_safetensors(entry.dtype), entry.shape,
                       [&checkpoint, stored_name = where.second] { return checkpoint.view(stored_name); }});
  }
  write_safetensors(dir / "model.safetensors", tensors);
}

}  // namespace vlmtune
