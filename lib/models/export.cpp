#include "lib/models/export.h"

#include "lib/base/errors.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

Tensor with_rows(const Tensor& matrix, int64_t rows) {
  if (matrix.size(0) >= rows) return matrix;
  const auto mean = matrix.to(torch::kFloat).mean(0, true).to(matrix.scalar_type());
  return torch::cat({matrix, mean.expand({rows - matrix.size(0), -1})}, 0);
}

bool is_vocabulary(const std::string& name) {
  return name.ends_with("embed_tokens.weight") || name == "lm_head.weight";
}

bool is_quantized_part(const std::string& name) {
  const auto parts = quantized_parts();
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return name.ends_with(part); });
}

}  // namespace

void export_weights(VlmModel& model, const std::vector<WeightSource>& sources, const fs::path& dir,
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
      const auto& [source, stored_name] = at->second;
      if (!holds_codes(source->checkpoint, stored_name))
        type = *dtype_from_safetensors(source->checkpoint.entry(stored_name).dtype);
      stored.erase(at);
    }
    auto shape = tensor.sizes().vec();
    const int64_t rows = is_vocabulary(name) ? std::max(vocab_rows, shape[0]) : shape[0];
    shape[0] = rows;
    tensors.push_back({model.config().published_name(name), type, shape,
                       [tensor, type, rows] { return with_rows(tensor.detach().to(type), rows); }});
  });
  bool in_few_bits = false;
  model.visit_linears([&](const std::string& module, Linear& linear) {
    if (!linear.quantized) return;
    const auto name = module + ".weight";
    if (is_vocabulary(name) && linear.out_features < vocab_rows)
      throw usage_error("/quantization/skip_modules: expected lm_head among them, since the vocabulary is enlarged");
    append_quantized(model.config().published_name(name), linear.quantized, fresh_type, tensors);
    stored.erase(name);
    in_few_bits = true;
  });
  for (const auto& [name, where] : stored) {  // what the model has no use for: buffers stay behind, layers come along
    if (component_of(name) != Component::kVisionTower || is_ignored_tensor(name) || is_quantized_part(name)) continue;
    const auto& checkpoint = where.first->checkpoint;
    const auto& stored_name = where.second;
    const auto published = model.config().published_name(name);
    const auto& entry = checkpoint.entry(stored_name);
    if (!holds_codes(checkpoint, stored_name)) {
      tensors.push_back({published, *dtype_from_safetensors(entry.dtype), entry.shape,
                         [&checkpoint, stored_name] { return checkpoint.view(stored_name); }});
      continue;
    }
    const auto weight = read_quantized(checkpoint, stored_name);
    if (in_few_bits)
      append_quantized(published, weight, fresh_type, tensors);
    else
      tensors.push_back({published, fresh_type, {weight->out, weight->in}, [weight, fresh_type] {
                           return kernels::dequantize(*weight, fresh_type);
                         }});
  }
  write_safetensors(dir / "model.safetensors", tensors);
}

}  // namespace vlmtune
