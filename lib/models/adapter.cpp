#include "lib/models/adapter.h"

#include <cmath>
#include <regex>

#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/checkpoint/checkpoint.h"
#include "lib/checkpoint/pickled.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/memory/scope.h"
#include "lib/models/config_reader.h"
#include "lib/models/fresh.h"
#include "lib/models/llava/original.h"
#include "lib/models/names.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

bool ends_module(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

template <typename T>
T by_pattern(const PatternTable<T>& patterns, const std::string& module, T fallback) {
  for (const auto& [pattern, value] : patterns)
    if (std::regex_match(module, std::regex("(.*\\.)?(" + pattern + ")"))) return value;
  return fallback;
}

/// "base_model.model.language_model.model.layers.0.q_proj.lora_A.weight" -> "model.language_model.layers.0.q_proj.lora_A.weight".
std::string canonical_adapter_name(const std::string& name, PartKind kind) {
  auto result = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
  for (const std::string_view part : {".modules_to_save.default", ".modules_to_save", ".default"}) {
    const auto at = result.find(part);
    if (at != std::string::npos) result.erase(at, part.size());
  }
  return canonical_tensor_name(result, kind);
}

std::vector<std::string> attach(VlmModel& model, const AdapterConfig& config, int64_t seed) {
  std::vector<std::string> attached;
  model.visit_linears([&](const std::string& name, Linear& linear) {
    if (!config.targets(name)) return;
    const int64_t rank = config.rank_of(name);
    const auto device = linear.device();
    const ModuleScope module(memory_module(name));
    linear.lora = std::make_unique<Lora>(
        Lora{.a = fresh_linear_values({rank, linear.in_features}, linear.in_features, name, seed, device),
             .b = torch::zeros({linear.out_features, rank}, device),
             .scale = config.scale_of(name),
             .dropout = config.dropout});
    attached.push_back(name);
  });
  return attached;
}

void make_whole(Linear& linear, torch::ScalarType type) {
  if (!linear.quantized) return;
  linear.weight = kernels::dequantize(*linear.quantized, type);
  linear.quantized.reset();
}

/// An adapter's tensors by the names that they have in the model.
struct StoredAdapter {
  struct Place {
    const Checkpoint* file;
    std::string name;  ///< there
  };
  std::vector<Checkpoint> files;
  std::map<std::string, Place> tensors;
};

StoredAdapter open_adapter(const fs::path& dir, PartKind kind) {
  StoredAdapter stored;
  const auto lora = dir / "adapter_model.safetensors", pickled = dir / "adapter_model.bin";
  stored.files.push_back(Checkpoint::open_file(!fs::exists(lora) && fs::exists(pickled) ? pickled : lora));
  if (fs::exists(dir / kNonLoraTrainables)) stored.files.push_back(Checkpoint::open_file(dir / kNonLoraTrainables));
  for (const auto& file : stored.files)
    for (const auto& name : file.names()) stored.tensors[canonical_adapter_name(name, kind)] = {&file, name};
  return stored;
}

/// What PEFT's config says elsewhere: LLaVA's trainer adds the tower after the adapter, so that its targets are the language
/// model's alone, and saves whatever else it trained.
void complete_original(AdapterConfig& config, const StoredAdapter& stored, PartKind kind) {
  bool in_tower = false;
  for (const auto& [name, place] : stored.tensors) {
    in_tower = in_tower || (is_lora(name) && component_of(name) == Component::kVisionTower);
    if (!is_lora(name)) config.modules_to_save.push_back(std::regex_replace(name, std::regex("\\.(weight|bias)$"), ""));
  }
  if (!in_tower) config.exclude_modules = {{}, ".*(vision_tower|multi_modal_projector).*"};
  for (auto& target : config.target_modules.names) target = canonical_tensor_name(target, kind);
}

/// The head of a tied model is its embedding: a file may repeat it, but not hold another one.
void check_saved_head(const VlmModel& model, const StoredAdapter::Place& place) {
  const auto& [file, name] = place;
  const auto &head = model.head_weight(), saved = file->view(name);
  if (saved.sizes() != head.sizes() || !torch::equal(saved.to(head.scalar_type()), head))
    throw input_error("{}: tensor \"{}\" differs from the embedding, but the model's config.json ties them",
                      file->path().string(), name);
}

}  // namespace

bool ModulePattern::matches(const std::string& module) const {
  if (regex) return std::regex_match(module, std::regex(*regex));
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return ends_module(module, name); });
}

int64_t AdapterConfig::rank_of(const std::string& module) const { return by_pattern(rank_pattern, module, r); }

double AdapterConfig::scale_of(const std::string& module) const {
  const double rank = static_cast<double>(rank_of(module));
  return by_pattern(alpha_pattern, module, alpha) / (use_rslora ? std::sqrt(rank) : rank);
}

bool AdapterConfig::targets(const std::string& module) const {
  if (saves(module) || exclude_modules.matches(module) || !target_modules.matches(module)) return false;
  if (layers_to_transform.empty()) return true;
  std::smatch match;
  if (!std::regex_search(module, match, std::regex("\\.[^.]+\\.(\\d+)\\."))) return false;
  return std::find(layers_to_transform.begin(), layers_to_transform.end(), std::stoll(match[1])) !=
         layers_to_transform.end();
}

bool lies_in(const std::string& name, const std::vector<std::string>& modules) {
  const auto path = "." + name + ".";
  return std::any_of(modules.begin(), modules.end(),
                     [&](const auto& module) { return path.find("." + module + ".") != std::string::npos; });
}

bool AdapterConfig::saves(const std::string& name) const { return lies_in(name, modules_to_save); }

std::vector<std::string> attach_lora(VlmModel& model, const AdapterConfig& config, int64_t seed) {
  auto attached = attach(model, config, seed);
  if (attached.empty()) throw usage_error("/lora/target_modules: matches no linear layer of the model");
  return attached;
}

AdapterConfig load_adapter(VlmModel& model, const fs::path& dir) {
  auto config = read_adapter_config(dir);
  auto stored = open_adapter(dir, model.config().whole());
  if (config.original_layout) complete_original(config, stored, model.config().whole());
  if (!config.target_modules.empty() && attach(model, config, 0).empty())
    throw input_error("{}: /target_modules: matches no linear layer of the model",
                      (dir / "adapter_config.json").string());
  model.visit_linears([&](const std::string& module, Linear& linear) {
    if (config.saves(module)) make_whole(linear, model.language_model().embed_tokens.scalar_type());
  });
  size_t used = 0;
  model.visit([&](const std::string& name, Tensor& slot) {
    const auto at = stored.tensors.find(name);
    if (at == stored.tensors.end()) {
      if (is_lora(name) || config.saves(name))
        throw input_error("{}: tensor \"{}{}\" is missing", stored.files[0].path().string(), kPrefix, name);
      return;
    }
    const auto& [file, stored_name] = at->second;
    const auto values = file->view(stored_name);
    if (values.sizes() != slot.sizes())
      throw input_error("{}: tensor \"{}\" has shape [{}], expected [{}]", file->path().string(), stored_name,
                        fmt::join(values.sizes(), ", "), fmt::join(slot.sizes(), ", "));
    // A replaced module keeps the type of the model; LoRA stays fp32.
    slot = values.to(slot.device(), is_lora(name) ? torch::kFloat : slot.scalar_type(), false, true);
    stored.tensors.erase(at);
    ++used;
  });
  if (used == 0) throw input_error("{}: no tensor in it belongs to the model", stored.files[0].path().string());
  for (const auto& [name, place] : stored.tensors) {
    if (name == "lm_head.weight" && model.config().text.tie_word_embeddings)
      check_saved_head(model, place);
    else if (!model.config().is_unused(name))
      throw input_error("{}: tensor \"{}\" belongs to no layer of the model", place.file->path().string(), place.name);
  }
  return config;
}

void save_adapter(VlmModel& model, const AdapterConfig& config, const fs::path& dir) {
  const auto published = [&](const std::string& name) {
    return config.original_layout ? model.config().published_name(name) : name;
  };
  std::map<std::string, Tensor> lora, saved;
  model.visit([&](const std::string& name, Tensor& tensor) {
    if (is_lora(name))
      lora[std::string(kPrefix) + published(name)] = tensor.detach();
    else if (config.saves(name))
      saved[std::string(kPrefix) + published(name)] = tensor.detach();
  });
  if (config.saves("lm_head")) saved[std::string(kPrefix) + "lm_head.weight"] = model.head_weight().detach();
  auto written = config;
  if (config.original_layout) {
    write_torch_file(dir / kNonLoraTrainables, saved);
    for (auto& target : written.target_modules.names) target = published(target);
    written.modules_to_save.clear();  // they lie elsewhere
    written.exclude_modules = {};
  } else {
    lora.merge(saved);
  }
  write_safetensors(dir / "adapter_model.safetensors", lora);
  write_adapter_config(written, dir);
}

void merge_adapter(VlmModel& model, torch::ScalarType dequantized_type) {
  const torch::NoGradGuard no_grad;
  model.visit_linears([&](const std::string&, Linear& linear) {
    make_whole(linear, dequantized_type);
    if (!linear.lora) return;
    const auto update =
        torch::matmul(linear.lora->b.to(torch::kFloat), linear.lora->a.to(torch::kFloat)) * linear.lora->scale;
    linear.weight =
        (linear.weight.to(torch::kFloat) + update.to(linear.weight.device())).to(linear.weight.scalar_type());
    linear.lora.reset();
  });
}

}  // namespace vlmtune
