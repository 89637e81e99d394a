#include "lib/models/weights.h"

#include "kernels/device.h"
#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/memory/scope.h"
#include "lib/memory/tracking.h"
#include "lib/memory/transfer.h"
#include "lib/models/fresh.h"

namespace vlmtune {
namespace {

struct Found {
  const Checkpoint* checkpoint;
  std::string name;  // as the file spells it
};

std::string shape_text(torch::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::map<std::string, Found> index_sources(const std::vector<WeightSource>& sources) {
  std::map<std::string, Found> index;
  for (const auto& source : sources) {
    for (const auto& name : source.checkpoint.names()) {
      const auto [at, is_new] =
          index.emplace(canonical_tensor_name(name, source.kind), Found{&source.checkpoint, name});
      if (!is_new)
        throw input_error("{}: tensor \"{}\" means the same as \"{}\"", source.checkpoint.file_of(name).string(), name,
                          at->second.name);
    }
  }
  return index;
}

/// A tied head that the file holds as well must be the embedding; config.json has the last word.
void check_tied_head(const std::map<std::string, Found>& index, const std::string& embedding) {
  const auto head = index.find("lm_head.weight"), embed = index.find(embedding);
  if (head == index.end() || embed == index.end()) return;
  const auto a = head->second.checkpoint->view(head->second.name),
             b = embed->second.checkpoint->view(embed->second.name);
  if (a.sizes() != b.sizes() || !torch::equal(a, b.to(a.scalar_type())))
    log_warning("{}: lm_head.weight differs from the embedding, but config.json ties them: the embedding is used",
                head->second.checkpoint->path().string());
}

/// A tensor of a file that a dry run does without.
Tensor stand_in(torch::IntArrayRef shape, torch::ScalarType type) {
  const UncountedScope not_there;
  return torch::empty(shape, torch::TensorOptions(torch::kMeta).dtype(type));
}

/// Where a tensor of the model goes.
struct Slot {
  Tensor& tensor;
  bool trained = false;
  Linear* quantized = nullptr;  ///< the layer that holds it in few bits instead
};

/// A frozen tensor that has its type already stays in the file's map when the CPU computes.
void place(const Tensor& values, const Slot& to, const WeightOptions& options) {
  auto& [slot, trained, quantized] = to;
  if (quantized != nullptr) {
    const auto& [applies, type, double_quant] = options.quantization;
    const auto source = options.device.is_meta() ? stand_in(values.sizes(), values.scalar_type()) : values;
    quantized->quantized = kernels::quantize(source, type, double_quant);
    slot = Tensor();
    return;
  }
  const auto wanted = trained ? options.trained_type : options.frozen_type;
  if (options.in_place && !trained && values.scalar_type() == wanted &&
      kernels::kernel_device(options.device) == torch::kCPU) {
    slot = to_device(values, options.device);
    memory_accounts().device->add_external(MemoryCategory::kWeights, static_cast<int64_t>(values.nbytes()));
  } else {
    slot = values.to(options.device, wanted, /*non_blocking=*/false, /*copy=*/true);
  }
}

void load_tensor(const Found& found, const Slot& to, const WeightOptions& options) {
  auto& slot = to.tensor;
  const auto& entry = found.checkpoint->entry(found.name);
  const auto file = found.checkpoint->file_of(found.name).string();
  if (c10::IntArrayRef(entry.shape) != slot.sizes())
    throw input_error("{}: tensor \"{}\" has shape {}, config.json says {}", file, found.name, shape_text(entry.shape),
                      shape_text(slot.sizes()));
  const auto values = found.checkpoint->view(found.name);
  const auto type = values.scalar_type();
  if (type != torch::kFloat && type != torch::kHalf && type != torch::kBFloat16 && type != torch::kDouble)
    throw input_error("{}: tensor \"{}\" is of type {}, which is not computed with: convert it to F32, F16 or BF16",
                      file, found.name, entry.dtype);
  place(values, to, options);
  if (!slot.defined() || slot.data_ptr() != values.data_ptr()) found.checkpoint->drop(found.name);
}

}  // namespace

void load_weights(LlavaModel& model, const std::vector<WeightSource>& sources, const WeightOptions& options) {
  auto index = index_sources(sources);
  const bool tied = model.config().text.tie_word_embeddings;
  if (tied && !options.device.is_meta() && !model.leaves_out("lm_head.weight"))
    check_tied_head(index,
                    model.has_vision() ? "model.language_model.embed_tokens.weight" : "model.embed_tokens.weight");
  std::map<std::string, Linear*> quantized;
  model.visit_linears([&](const std::string& module, Linear& linear) {
    const auto name = module + ".weight";
    if (options.quantization.applies(module) && !options.is_trained(name)) quantized[name] = &linear;
  });
  std::string missing;
  model.visit([&](const std::string& name, Tensor& slot) {
    const auto layer = quantized.find(name);
    const Slot to{slot, options.is_trained(name), layer == quantized.end() ? nullptr : layer->second};
    const ModuleScope module(memory_module(name));
    const auto at = index.find(name);
    if (at != index.end()) {
      load_tensor(at->second, to, options);
      index.erase(at);
    } else if (const auto values = options.fresh(name, slot.sizes())) {
      slot = values->to(to.trained ? options.trained_type : options.frozen_type);
    } else if (options.stand_in_type) {
      place(stand_in(slot.sizes(), *options.stand_in_type), to, options);
    } else if (missing.empty()) {
      missing = name;
    }
  });
  if (!missing.empty()) {
    std::vector<std::string> where;
    for (const auto& source : sources) where.push_back(source.checkpoint.path().string());
    throw input_error("{}: tensor \"{}\" is missing", fmt::join(where, ", "), missing);
  }
  for (const auto& [name, found] : index)
    if (!is_ignored_tensor(name, model.config().num_vision_layers(), tied) && !model.leaves_out(name))
      throw input_error("{}: tensor \"{}\" is not part of the model that config.json describes",
                        found.checkpoint->file_of(found.name).string(), found.name);
}

std::optional<Tensor> fresh_projector_tensor(const std::string& name, torch::IntArrayRef shape, int64_t seed,
                                             const LlavaConfig& config, torch::Device device) {
  constexpr std::string_view kProjector = "model.multi_modal_projector.linear_";
  if (!name.starts_with(kProjector)) return std::nullopt;
  const bool first = name[kProjector.size()] == '1';
  const int64_t fan_in =
      first ? config.vision->hidden_size * static_cast<int64_t>(config.feature_states.size()) : config.text.hidden_size;
  return fresh_linear_values(shape, fan_in, name, seed, device);
}

}  // namespace vlmtune
