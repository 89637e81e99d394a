#include "lib/models/stored_quantization.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/dynamic_values.h"
#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/models/names.h"

namespace vlmtune {
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using kernels::QuantizedPtr;
using kernels::QuantType;
namespace {

constexpr const char* kParts[] = {".weight.absmax",
                                  ".weight.quant_map",
                                  ".weight.nested_absmax",
                                  ".weight.nested_quant_map",
                                  ".weight.quant_state.bitsandbytes__nf4",
                                  ".weight.quant_state.vlmtune__int4",
                                  ".weight.quant_state.vlmtune__int8",
                                  ".SCB",
                                  ".weight_format"};

struct TypeName {
  QuantType type;
  const char *name, *state;
};
constexpr TypeName kTypes[] = {{QuantType::kNf4, "nf4", ".quant_state.bitsandbytes__nf4"},
                               {QuantType::kInt4, "int4", ".quant_state.vlmtune__int4"},
                               {QuantType::kInt8, "int8", ".quant_state.vlmtune__int8"}};

const TypeName& name_of(QuantType type) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& row) { return row.type == type; });
}

/// Rows with a scale each.
bool is_llm_int8(const kernels::QuantizedWeight& weight) {
  return weight.type == QuantType::kInt8 && weight.block == weight.in && !weight.nested_scales.defined();
}

std::string module_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

/// One layer's tensors, each checked as it is taken.
class Layer {
 public:
  Layer(const Checkpoint& checkpoint, const std::string& weight) : checkpoint_(checkpoint), weight_(weight) {}

  UserError fail(const std::string& name, const std::string& what) const {
    return input_error("{}: tensor \"{}\" {}", checkpoint_.file_of(weight_).string(), name, what);
  }
  Tensor take(const std::string& name, const char* dtype, const std::vector<int64_t>& shape) const {
    if (!checkpoint_.has(name)) throw fail(name, fmt::format("is missing beside \"{}\"", weight_));
    const auto& entry = checkpoint_.entry(name);
    if (entry.dtype != dtype || entry.shape != shape)
      throw fail(name, fmt::format("is {} [{}], expected {} [{}]", entry.dtype, fmt::join(entry.shape, ", "), dtype,
                                   fmt::join(shape, ", ")));
    return checkpoint_.view(name);
  }
  void check_values(const std::string& part, const Tensor& expected) const {
    const auto name = weight_ + part;
    if (!torch::allclose(take(name, "F32", expected.sizes().vec()), expected, 1e-4, 1e-9))
      throw fail(name, "holds other numbers than this type has");
  }
  /// The type by the state that is there, and the state.
  std::pair<QuantType, ConfigReader> state() const {
    for (const auto& type : kTypes) {
      const auto name = weight_ + type.state;
      if (!checkpoint_.has(name)) continue;
      const auto bytes = take(name, "U8", {c10::multiply_integers(checkpoint_.entry(name).shape)});
      const std::string text(reinterpret_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
      const auto place = fmt::format("{}: tensor \"{}\"", checkpoint_.file_of(name).string(), name);
      auto json = ConfigReader::parse(text, place);
      if (json.text("quant_type", "") != type.name)
        throw input_error("{}: found \"{}\", expected \"{}\"", json.place("quant_type"), json.text("quant_type", ""),
                          type.name);
      return {type.type, std::move(json)};
    }
    if (checkpoint_.has(weight_ + ".quant_state.bitsandbytes__fp4"))
      throw fail(weight_ + ".quant_state.bitsandbytes__fp4", "is of type fp4, which is not read: nf4 is");
    throw fail(weight_, fmt::format("holds codes, and \"{}{}\" is missing", weight_, kTypes[0].state));
  }

 private:
  const Checkpoint& checkpoint_;
  const std::string& weight_;
};

int64_t read_block(const ConfigReader& state) {
  const int64_t block = state.integer("blocksize", 0);
  if (block < 32 || block > 4096 || (block & (block - 1)) != 0)
    throw input_error("{}: found {}, expected a power of 2 from 32 to 4096", state.place("blocksize"), block);
  return block;
}

void read_scales(const Layer& layer, const Checkpoint& checkpoint, const std::string& weight, const ConfigReader& state,
                 kernels::QuantizedWeight& result) {
  const bool nested = checkpoint.has(weight + ".nested_absmax") || state.has("nested_offset");
  result.scales = layer.take(weight + ".absmax", nested ? "U8" : "F32", {result.blocks()});
  if (!nested) return;
  if (state.integer("nested_blocksize", 0) != kernels::kScaleBlock)
    throw input_error("{}: found {}, expected {}", state.place("nested_blocksize"),
                      state.integer("nested_blocksize", 0), kernels::kScaleBlock);
  if (!state.has("nested_offset")) throw input_error("{}: is missing", state.place("nested_offset"));
  result.offset = torch::tensor(state.number("nested_offset", 0), torch::kFloat);
  result.nested_scales = layer.take(weight + ".nested_absmax", "F32",
                                    {(result.blocks() + kernels::kScaleBlock - 1) / kernels::kScaleBlock});
  layer.check_values(".nested_quant_map", kernels::dynamic_values(true));
}

QuantizedPtr new_weight(QuantType type, int64_t out, int64_t in, int64_t block) {
  auto result = c10::make_intrusive<kernels::QuantizedWeight>();
  result->type = type;
  result->out = out;
  result->in = in;
  result->block = block;
  return result;
}

QuantizedPtr read_llm_int8(const Layer& layer, const Checkpoint& checkpoint, const std::string& weight) {
  const auto& shape = checkpoint.entry(weight).shape;
  if (shape.size() != 2) throw layer.fail(weight, "is no matrix");
  const int64_t out = shape[0], in = shape[1];
  const auto result = new_weight(QuantType::kInt8, out, in, in);
  result->codes = layer.take(weight, "I8", {out, in}).flatten();
  result->scales = layer.take(module_of(weight) + ".SCB", "F32", {out});
  const auto format = module_of(weight) + ".weight_format";
  if (checkpoint.has(format) && *layer.take(format, "U8", {}).data_ptr<uint8_t>() != 0)
    throw layer.fail(format, "says that the weight is not stored row by row, which is not read");
  return result;
}

StoredQuantization read_bitsandbytes(const ConfigReader& config) {
  StoredQuantization stored;
  stored.skip_modules =
      config.has("llm_int8_skip_modules") ? config.texts("llm_int8_skip_modules") : std::vector<std::string>{"lm_head"};
  if (config.boolean("load_in_8bit", false)) {
    stored.type = QuantType::kInt8;
    stored.block = 0;
    return stored;
  }
  const auto expect = [&](const char* key, const char* fallback, const char* expected) {
    const auto found = config.text(key, fallback);
    if (found != expected) throw input_error("{}: found {}, expected {}", config.place(key), found, expected);
  };
  expect("bnb_4bit_quant_type", "fp4", "nf4");
  expect("bnb_4bit_quant_storage", "uint8", "uint8");
  stored.double_quant = config.boolean("bnb_4bit_use_double_quant", false);
  return stored;
}

StoredQuantization read_own(const ConfigReader& config) {
  StoredQuantization stored;
  const auto type = config.text("type", "");
  const auto* row =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& known) { return type == known.name; });
  if (row == std::end(kTypes) || row->type == QuantType::kNf4)
    throw input_error("{}: found \"{}\", expected int4 or int8", config.place("type"), type);
  stored.type = row->type;
  stored.double_quant = config.boolean("double_quant", false);
  stored.block = config.integer("group_size", kernels::kQuantBlock);
  config.check_sizes({{"group_size", stored.block}});
  stored.skip_modules = config.texts("skip_modules");
  return stored;
}

/// Layers that are whole; a component all of whose layers are goes by its name, in every version's spelling.
std::vector<std::string> whole_modules(VlmModel& model) {
  constexpr std::string_view kComponents[] = {"vision_tower", "visual", "multi_modal_projector", "lm_head"};
  const auto component_in = [&](const std::string& module) {
    for (const auto component : kComponents)
      if (const auto at = module.find(component); at != std::string::npos)
        return std::pair(module.substr(0, at), std::string(component));
    return std::pair(std::string(), module);
  };
  // What stands before a component, its name -> whether all are whole, those that are.
  std::map<std::pair<std::string, std::string>, std::pair<bool, std::vector<std::string>>> groups;
  model.visit_linears([&](const std::string& module, Linear& linear) {
    auto& [all, whole] = groups.try_emplace(component_in(module), true, std::vector<std::string>()).first->second;
    all = all && !linear.quantized;
    if (!linear.quantized) whole.push_back(module);
  });
  std::vector<std::string> names;
  for (const auto& [key, group] : groups) {
    const auto& [prefix, component] = key;
    const auto& [all, whole] = group;
    if (!all || !std::count(std::begin(kComponents), std::end(kComponents), component)) {
      names.insert(names.end(), whole.begin(), whole.end());
      if (component_of(component + ".") == Component::kVisionTower) {
        const auto unused = model.config().vision->unused_modules();
        names.insert(names.end(), unused.begin(), unused.end());
      }
      continue;
    }
    names.push_back(component);
    if (!prefix.empty()) names.push_back(prefix + component);
  }
  return names;
}

std::string torch_name(torch::ScalarType type) {
  return type == torch::kFloat ? "float32" : type == torch::kHalf ? "float16" : "bfloat16";
}

}  // namespace

bool StoredQuantization::applies(const std::string& module) const {
  constexpr std::string_view kModel = "model.";
  const auto without = module.starts_with(kModel) ? module.substr(kModel.size()) : module;
  return std::none_of(skip_modules.begin(), skip_modules.end(), [&](const auto& name) {
    return module.starts_with(name) || without.starts_with(name) || module.ends_with(name);
  });
}

QuantizedPtr StoredQuantization::stand_in(int64_t out, int64_t in, torch::Device device) const {
  return kernels::empty_quantized(out, in, type, double_quant, block == 0 ? in : block, device);
}

std::optional<StoredQuantization> read_stored_quantization(const fs::path& dir) {
  const auto config = ConfigReader::open(dir / "config.json");
  if (!config.has("quantization_config")) return std::nullopt;
  const auto quantization = config.object("quantization_config");
  const auto method = quantization.text("quant_method", "bitsandbytes");  // old files do without
  if (method == "bitsandbytes") return read_bitsandbytes(quantization);
  if (method == "vlmtune") return read_own(quantization);
  throw input_error("{}: found \"{}\", which is not read: bitsandbytes is", quantization.place("quant_method"), method);
}

bool holds_codes(const Checkpoint& checkpoint, const std::string& weight) {
  const auto& type = checkpoint.entry(weight).dtype;
  return type == "U8" || type == "I8";
}

QuantizedPtr read_quantized(const Checkpoint& checkpoint, const std::string& weight) {
  const Layer layer(checkpoint, weight);
  const bool own_int8 = checkpoint.has(weight + name_of(QuantType::kInt8).state);
  if (checkpoint.entry(weight).dtype == "I8" && !own_int8) return read_llm_int8(layer, checkpoint, weight);
  const auto [type, state] = layer.state();
  const auto shape = state.integers("shape");
  constexpr int64_t kLargest = 1 << 30;
  if (shape.size() != 2 || std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n <= 0 || n > kLargest; }))
    throw input_error("{}: found [{}], expected two sizes", state.place("shape"), fmt::join(shape, ", "));
  const int64_t out = shape[0], in = shape[1];
  const auto result = new_weight(type, out, in, read_block(state));
  if (type == QuantType::kInt8) {
    result->codes = layer.take(weight, "I8", {out, in}).flatten();
  } else {
    result->codes = layer.take(weight, "U8", {(result->numel() + 1) / 2, 1}).flatten();
    layer.check_values(".quant_map", kernels::values_of_codes(type));
  }
  read_scales(layer, checkpoint, weight, state, *result);
  return result;
}

std::span<const char* const> quantized_parts() { return kParts; }

void append_quantized(const std::string& name, const QuantizedPtr& weight, torch::ScalarType type,
                      std::vector<TensorToWrite>& tensors) {
  const auto add = [&](const std::string& part, const Tensor& values) {
    tensors.push_back({name + part, values.scalar_type(), values.sizes().vec(), [values] { return values; }});
  };
  const bool bytes = weight->type == QuantType::kInt8;
  if (is_llm_int8(*weight)) {
    add("", weight->codes.view({weight->out, weight->in}));
    tensors.push_back({module_of(name) + ".SCB", torch::kFloat, {weight->out}, [weight] { return weight->scales; }});
    return;
  }
  add("", bytes ? weight->codes.view({weight->out, weight->in}) : weight->codes.view({-1, 1}));
  add(".absmax", weight->scales);
  if (!bytes) add(".quant_map", kernels::values_of_codes(weight->type));
  Json state = {{"quant_type", name_of(weight->type).name},
                {"blocksize", weight->block},
                {"dtype", torch_name(type)},
                {"shape", {weight->out, weight->in}}};
  if (weight->nested_scales.defined()) {
    add(".nested_absmax", weight->nested_scales);
    add(".nested_quant_map", kernels::dynamic_values(true));
    state["nested_blocksize"] = kernels::kScaleBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(weight->offset.item<float>());
  }
  const auto text = state.dump();
  auto packed = torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
  std::memcpy(packed.data_ptr(), text.data(), text.size());
  add(name_of(weight->type).state, packed);
}

std::string quantization_config(VlmModel& model, torch::ScalarType type) {
  QuantizedPtr first;
  bool llm_int8 = true;
  model.visit_linears([&](const std::string&, Linear& linear) {
    if (!linear.quantized) return;
    first = linear.quantized;
    llm_int8 = llm_int8 && is_llm_int8(*linear.quantized);
  });
  if (!first) return {};
  const auto skipped = whole_modules(model);
  const bool double_quant = first->nested_scales.defined();
  if (first->type == QuantType::kNf4 || llm_int8)
    return Json({{"quant_method", "bitsandbytes"},
                 {"load_in_4bit", !llm_int8},
                 {"load_in_8bit", llm_int8},
                 {"bnb_4bit_quant_type", "nf4"},
                 {"bnb_4bit_use_double_quant", double_quant},
                 {"bnb_4bit_quant_storage", "uint8"},
                 {"bnb_4bit_compute_dtype", torch_name(type)},
                 {"llm_int8_skip_modules", skipped}})
        .dump();
  return Json({{"quant_method", "vlmtune"},
               {"type", name_of(first->type).name},
               {"group_size", first->block},
               {"double_quant", double_quant},
               {"skip_modules", skipped}})
      .dump();
}

}  // namespace vlmtune
