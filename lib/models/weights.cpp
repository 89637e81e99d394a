#include "lib/models/weights.h"

#include "kernels/device.h"
#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/memory/scope.h"
#include "lib/memory/tracking.h"
#include "lib/memory/transfer.h"
#include "lib/models/fresh.h"
#include "lib/models/llava/config.h"

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
      if (!is_new && source.kind == PartKind::kProjector)  // one that was trained later
        at->second = {&source.checkpoint, name};
      else if (!is_new)
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
  const std::string& name;
  Tensor& tensor;
  bool trained = false;
  bool streamed = false;
  Linear* linear = nullptr;  ///< the layer whose weight it is
  bool quantize = false;     ///< ... and which holds it in few bits instead
};

/// A frozen tensor on the device whose values come later.
Tensor without_memory(torch::IntArrayRef shape, torch::ScalarType type, torch::Device device) {
  if (device.is_meta()) return stand_in(shape, type);
  const auto tensor = torch::empty(shape, torch::TensorOptions(device).dtype(type));
  tensor.storage().set_data_ptr_noswap({nullptr, device});
  return tensor;
}

/// What a streamed tensor is read from: the mapped file, or the copy on the host of a device with memory of its own.
Tensor stream_source(const Tensor& values, torch::ScalarType type, const WeightOptions& options) {
  if (!options.streamed_from_host) return values;
  auto copy = empty_on_host(values.sizes(), type, options.device);
  if (!copy.is_meta()) copy.copy_(values);
  return copy;
}

/// What a block computes with, which comes and goes with it; in `type` unless the CPU looks at the file's own.
Tensor stream(VlmModel& model, const std::string& name, const Tensor& values, torch::ScalarType type,
              const WeightOptions& options) {
  const auto source = stream_source(values, type, options);
  const bool shared = kernels::kernel_device(options.device) == torch::kCPU;
  auto tensor = shared ? to_device(source, options.device) : without_memory(values.sizes(), type, options.device);
  model.stream_weight(name, tensor, source, !options.streamed_from_host);
  return tensor;
}

/// A frozen tensor that has its type already stays in the file's map when the CPU computes.
Tensor settle(const Tensor& values, torch::ScalarType wanted, bool trained, const WeightOptions& options) {
  if (!options.in_place || trained || values.scalar_type() != wanted ||
      kernels::kernel_device(options.device) != torch::kCPU)
    return values.to(options.device, wanted, /*non_blocking=*/false, /*copy=*/true);
  memory_accounts().device->add_external(MemoryCategory::kWeights, static_cast<int64_t>(values.nbytes()));
  return to_device(values, options.device);
}

void place(VlmModel& model, const Tensor& values, const Slot& to, const WeightOptions& options) {
  if (to.streamed) {
    to.tensor = stream(model, to.name, values, options.frozen_type, options);
    return;
  }
  if (to.quantize) {
    const auto& [applies, type, double_quant] = options.quantization;
    const auto source = options.device.is_meta() ? stand_in(values.sizes(), values.scalar_type()) : values;
    to.linear->quantized = kernels::quantize(source, type, double_quant);
    auto& q = *to.linear->quantized;
    for (auto* part : {&q.codes, &q.scales, &q.nested_scales, &q.offset})
      if (part->defined()) *part = part->to(options.device);
    to.tensor = Tensor();
    return;
  }
  to.tensor = settle(values, to.trained ? options.trained_type : options.frozen_type, to.trained, options);
}

/// A weight that the file holds in few bits. What is streamed of it is its codes, the most of it.
void place_quantized(VlmModel& model, const kernels::QuantizedPtr& stored, const Slot& to,
                     const WeightOptions& options) {
  if (to.trained) {
    to.tensor = kernels::dequantize(*stored, options.trained_type);
    return;
  }
  auto& codes = stored->codes;
  codes = to.streamed ? stream(model, to.name, codes, codes.scalar_type(), options)
                      : settle(codes, codes.scalar_type(), false, options);
  for (auto* part : {&stored->scales, &stored->nested_scales})
    if (part->defined()) *part = settle(*part, part->scalar_type(), false, options);
  if (stored->offset.defined()) stored->offset = stored->offset.to(options.device);
  to.linear->quantized = stored;
  to.tensor = Tensor();
}

UserError other_shape(const Found& found, torch::IntArrayRef shape, const Slot& to) {
  return input_error("{}: tensor \"{}\" has shape {}, config.json says {}",
                     found.checkpoint->file_of(found.name).string(), found.name, shape_text(shape),
                     shape_text(to.tensor.sizes()));
}

void load_quantized(VlmModel& model, const Found& found, const Slot& to, const WeightOptions& options) {
  auto stored = read_quantized(*found.checkpoint, found.name);
  if (to.streamed && !found.checkpoint->entry(found.name).strides.empty())
    throw input_error("{}: tensor \"{}\" is not stored row by row, so it cannot be streamed",
                      found.checkpoint->file_of(found.name).string(), found.name);
  const int64_t out = stored->out, in = stored->in;
  if (to.tensor.sizes() != torch::IntArrayRef({out, in})) throw other_shape(found, {out, in}, to);
  if (to.trained && options.device.is_meta()) {
    const UncountedScope not_there;
    stored =
        kernels::empty_quantized(out, in, stored->type, stored->nested_scales.defined(), stored->block, options.device);
  }
  place_quantized(model, stored, to, options);
}

void load_tensor(VlmModel& model, const Found& found, const Slot& to, const WeightOptions& options) {
  if (to.linear != nullptr && holds_codes(*found.checkpoint, found.name))
    return load_quantized(model, found, to, options);
  auto& slot = to.tensor;
  const auto& entry = found.checkpoint->entry(found.name);
  const auto file = found.checkpoint->file_of(found.name).string();
  if (c10::IntArrayRef(entry.shape) != slot.sizes()) throw other_shape(found, entry.shape, to);
  const auto values = found.checkpoint->view(found.name);
  const auto type = values.scalar_type();
  if (type != torch::kFloat && type != torch::kHalf && type != torch::kBFloat16 && type != torch::kDouble)
    throw input_error("{}: tensor \"{}\" is of type {}, which is not computed with: convert it to F32, F16 or BF16",
                      file, found.name, entry.dtype);
  if (to.streamed && entry.begin % values.element_size() != 0)
    throw input_error("{}: tensor \"{}\" is not aligned to its type, so it cannot be streamed", file, found.name);
  place(model, values, to, options);
  if (!slot.defined() || slot.data_ptr() != values.data_ptr()) found.checkpoint->drop(found.name);
}

/// A tensor of a checkpoint that is not there, for a dry run.
void place_stand_in(VlmModel& model, const Slot& to, const WeightOptions& options) {
  const auto module = to.name.substr(0, to.name.rfind('.'));
  if (to.linear == nullptr || !options.stand_in_quantization || !options.stand_in_quantization->applies(module))
    return place(model, stand_in(to.tensor.sizes(), *options.stand_in_type), to, options);
  const auto stored = [&] {
    const UncountedScope not_there;
    return options.stand_in_quantization->stand_in(to.linear->out_features, to.linear->in_features, options.device);
  }();
  place_quantized(model, stored, to, options);
}

}  // namespace

void load_weights(VlmModel& model, const std::vector<WeightSource>& sources, const WeightOptions& options) {
  auto index = index_sources(sources);
  const bool tied = model.config().text.tie_word_embeddings;
  if (tied && !options.device.is_meta() && !model.leaves_out("lm_head.weight"))
    check_tied_head(index,
                    model.has_vision() ? "model.language_model.embed_tokens.weight" : "model.embed_tokens.weight");
  std::map<std::string, Linear*> linears;
  model.visit_linears([&](const std::string& module, Linear& linear) { linears[module + ".weight"] = &linear; });
  std::string missing;
  model.visit([&](const std::string& name, Tensor& slot) {
    const bool trained = options.is_trained(name);
    const auto layer = linears.find(name);
    const auto module_name = name.substr(0, name.rfind('.'));
    const bool is_layer = layer != linears.end();
    const Slot to{name,
                  slot,
                  trained,
                  !trained && options.is_streamed(name),
                  is_layer ? layer->second : nullptr,
                  is_layer && !trained && options.quantization.applies(module_name)};
    const ModuleScope module(memory_module(name));
    const auto at = index.find(name);
    if (at != index.end()) {
      load_tensor(model, at->second, to, options);
      if (is_layer && holds_codes(*at->second.checkpoint, at->second.name))
        for (const char* part : quantized_parts()) index.erase(module_name + part);
      index.erase(at);
    } else if (const auto values = options.fresh(name, slot.sizes())) {
      slot = values->to(to.trained ? options.trained_type : options.frozen_type);
    } else if (options.stand_in_type) {
      place_stand_in(model, to, options);
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
    if (!model.config().is_unused(name) && !(tied && name == "lm_head.weight") && !model.leaves_out(name))
      throw input_error("{}: tensor \"{}\" is not part of the model that config.json describes",
                        found.checkpoint->file_of(found.name).string(), found.name);
}

std::optional<Tensor> fresh_projector_tensor(const std::string& name, torch::IntArrayRef shape, int64_t seed,
                                             const VlmConfig& config, torch::Device device) {
  constexpr std::string_view kProjector = "model.multi_modal_projector.linear_";
  if (!name.starts_with(kProjector)) return std::nullopt;
  const bool first = name[kProjector.size()] == '1';
  const auto& llava = llava_vision(config);
  const int64_t fan_in = first ? llava.feature_size() : llava.projector.width;
  return fresh_linear_values(shape, fan_in, name, seed, device);
}

}  // namespace vlmtune
