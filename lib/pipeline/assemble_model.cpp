#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/memory/scope.h"
#include "lib/models/config_reader.h"
#include "lib/models/llava/config.h"
#include "lib/models/llava/original.h"
#include "lib/models/similarity.h"
#include "lib/pipeline/assemble.h"
#include "lib/pipeline/model_files.h"
#include "lib/pipeline/options.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// The host is the CPU's own memory: there only a file is somewhere else.
bool streams_weights(const Recipe& recipe) {
  const auto& parameters = recipe.memory.offload.parameters;
  return parameters == "disk" || (parameters == "cpu" && recipe.hardware.device != "cpu");
}

const char* type_name(kernels::QuantType type) {
  return type == kernels::QuantType::kNf4 ? "nf4" : type == kernels::QuantType::kInt4 ? "int4" : "int8";
}

/// A checkpoint in few bits is used as it is: the recipe may ask for the same or for nothing.
void check_quantization(const Recipe& recipe, const StoredQuantization& stored) {
  const auto& dir = recipe.model.path;
  if (recipe.quantization.bits == 16) return;
  const auto wanted = quantization_options(recipe.quantization).type;
  if (wanted != stored.type)
    throw usage_error("/quantization/type: found {}, but {} holds {}; with quantization.bits 16 it is used as it is",
                      type_name(wanted), dir, type_name(stored.type));
  log_warning("quantization has no effect: {} holds {} already", dir, type_name(stored.type));
}

bool has_weights(const fs::path& path) {
  if (!fs::is_directory(path)) return fs::exists(path);
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".safetensors" || entry.path().extension() == ".bin") return true;
  return false;
}

WeightSource open_source(const fs::path& path, PartKind kind) {
  return {fs::is_directory(path) ? Checkpoint::open(path) : Checkpoint::open_file(path), kind};
}

/// The folder with the tower's weights, and what it is: LLaVA's own checkpoints have a tower that was trained in them.
std::pair<fs::path, PartKind> tower_weights(const Recipe& recipe) {
  const fs::path dir = recipe.model.path;
  const auto tower = tower_of(recipe);
  if (!tower) return {dir, PartKind::kWhole};
  if (is_whole(recipe) && has_weights(dir))
    for (const auto& name : Checkpoint::open(dir).names())
      if (name.find("vision_tower.") != std::string::npos) return {dir, PartKind::kWhole};
  return {*tower, PartKind::kVisionTower};
}

/// How weights are held, whatever the part of the model.
WeightOptions weight_options(const Recipe& recipe, torch::Device device) {
  WeightOptions options;
  options.device = device;
  options.frozen_type = to_scalar_type(recipe.precision.parameters);
  options.stand_in_quantization = read_stored_quantization(recipe.model.path);
  if (auto& stored = options.stand_in_quantization) {
    if (recipe.model.vision_tower)
      stored->skip_modules.insert(stored->skip_modules.end(), {"vision_tower", "multi_modal_projector"});
  } else {
    options.quantization = quantization_options(recipe.quantization);
  }
  if (streams_weights(recipe)) {
    options.is_streamed = [](const std::string& name) {
      return memory_module(name).find("layers.") != std::string::npos;
    };
    options.streamed_from_host = recipe.memory.offload.parameters == "cpu";
  }
  return options;
}

/// A dry run does without files that are not there.
void add_source(const Recipe& recipe, const fs::path& dir, PartKind kind, ModelParts& parts, WeightOptions& options) {
  if (options.device.is_meta() && !has_weights(dir))
    options.stand_in_type = to_scalar_type(declared_precision(dir).value_or(recipe.precision.parameters));
  else
    parts.sources.push_back(open_source(dir, kind));
}

/// LLaVA's own adapters have no list of what they save.
bool adapter_saves(const Recipe& recipe, const std::string& module) {
  if (!recipe.model.adapter) return false;
  const auto adapter = read_adapter_config(*recipe.model.adapter);
  return adapter.original_layout || adapter.saves(module);
}

AdapterConfig lora_config(const Recipe& recipe, VlmModel& model) {
  const auto& lora = *recipe.lora;
  ModulePattern language, vision{lora.vision_target_modules, std::nullopt};
  const bool all = lora.target_modules.kind == TargetModules::Kind::kAllLinear;
  language.names = lora.target_modules.names;
  if (lora.target_modules.kind == TargetModules::Kind::kRegex) language.regex = lora.target_modules.regex;
  AdapterConfig config;
  config.r = lora.r;
  config.alpha = lora.alpha;
  config.dropout = lora.dropout;
  config.use_rslora = lora.use_rslora;
  config.modules_to_save = training_choices(recipe, model.config()).modules_to_save;
  config.original_layout = in_original_layout(model.config());
  config.base_model = recipe.model.path;
  // Full names, since PEFT's endings would also hit the tower, which uses the same ones.
  model.visit_linears([&](const std::string& name, Linear&) {
    const auto component = component_of(name + ".weight");
    const bool wanted = component == Component::kVisionTower     ? vision.matches(name)
                        : component == Component::kLanguageModel ? (all ? name != "lm_head" : language.matches(name))
                                                                 : language.regex && language.matches(name);
    if (wanted) config.target_modules.names.push_back(name);
  });
  return config;
}

}  // namespace

ModelParts assemble_model(const Recipe& recipe, const VlmConfig& config, Command command, torch::Device device,
                          std::optional<torch::ScalarType> trained_type) {
  const PhaseScope phase("load");
  const MemoryScope scope(MemoryCategory::kWeights);
  const bool trains = command != Command::kInfer;
  ModelParts parts;
  parts.model = std::make_unique<VlmModel>(
      config, trains && config.vision && recipe.data.embedding_cache ? VlmParts::kWithoutTower : VlmParts::kAll);
  auto options = weight_options(recipe, device);
  const bool whole = is_whole(recipe);
  add_source(recipe, recipe.model.path, whole ? config.whole() : PartKind::kLanguageModel, parts, options);
  if (const auto [dir, kind] = tower_weights(recipe); kind == PartKind::kVisionTower)
    add_source(recipe, dir, kind, parts, options);
  if (recipe.model.projector) add_source(recipe, *recipe.model.projector, PartKind::kProjector, parts, options);
  options.trained_type = trained_type.value_or(trained_type_of(recipe));
  if (options.stand_in_quantization) check_quantization(recipe, *options.stand_in_quantization);
  const auto choices = training_choices(recipe, config);
  if (trains) options.is_trained = [choices](const std::string& name) { return is_trained(name, choices); };
  if (!whole && !recipe.model.projector) {
    if (!trains && !adapter_saves(recipe, "multi_modal_projector"))
      throw usage_error("/model/projector: is needed beside /model/vision_tower, unless /model/adapter holds one");
  }
  // What an adapter holds takes their place.
  const bool fresh_projector = !whole && !recipe.model.projector,
             fresh_head = trains || adapter_saves(recipe, "similarity_head");
  options.fresh = [&](const std::string& name, torch::IntArrayRef shape) {
    auto values =
        fresh_projector ? fresh_projector_tensor(name, shape, recipe.train.seed, config, device) : std::nullopt;
    return values || !fresh_head ? values : fresh_similarity_tensor(name, shape, device);
  };
  load_weights(*parts.model, parts.sources, options);
  if (recipe.model.adapter) {
    parts.adapter = load_adapter(*parts.model, *recipe.model.adapter);
  } else if (trains && recipe.lora) {
    if (recipe.lora->init_from) {
      parts.adapter = load_adapter(*parts.model, *recipe.lora->init_from);
      for (const auto& module : choices.modules_to_save)
        if (!parts.adapter->saves(module)) parts.adapter->modules_to_save.push_back(module);
    } else {
      parts.adapter = lora_config(recipe, *parts.model);
      attach_lora(*parts.model, *parts.adapter, recipe.train.seed);
    }
  }
  return parts;
}

ModelParts assemble_tower(const Recipe& recipe, const VlmConfig& config, torch::Device device) {
  const MemoryScope scope(MemoryCategory::kWeights);
  ModelParts parts;
  parts.model = std::make_unique<VlmModel>(config, VlmParts::kTower);
  auto options = weight_options(recipe, device);
  options.in_place = false;
  const auto [dir, kind] = tower_weights(recipe);
  add_source(recipe, dir, kind, parts, options);
  load_weights(*parts.model, parts.sources, options);
  return parts;
}

WeightSource tower_source(const Recipe& recipe) {
  const auto [dir, kind] = tower_weights(recipe);
  return open_source(dir, kind);
}

}  // namespace vlmtune
