// adapter_config.json: read with PEFT's defaults, written with the keys PEFT needs.
#include <nlohmann/json.hpp>
#include <regex>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/models/adapter.h"
#include "lib/models/config_reader.h"
#include "lib/models/llava/original.h"

namespace vlmtune {
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;  // patterns are tried in the order of the file
namespace {

void check_regex(const std::string& text, const std::string& place) {
  try {
    const std::regex regex(text);
  } catch (const std::regex_error& error) {
    throw input_error("{}: \"{}\" cannot be read as a regular expression ({})", place, text, error.what());
  }
}

template <typename T>
PatternTable<T> read_table(const Json& json, const ConfigReader& config, const char* key,
                           T (ConfigReader::*get)(const std::string&, T) const) {
  PatternTable<T> table;
  const auto values = config.object(key);
  if (!config.has(key)) return table;
  for (const auto& [pattern, value] : json[key].items()) {
    check_regex(pattern, values.place(pattern));
    table.emplace_back(pattern, (values.*get)(pattern, T{}));
  }
  return table;
}

ModulePattern read_pattern(const Json& json, const std::string& file, const char* key) {
  ModulePattern pattern;
  if (!json.contains(key) || json[key].is_null()) return pattern;
  const auto& value = json[key];
  if (value.is_string()) {
    pattern.regex = value.get<std::string>();
    check_regex(*pattern.regex, fmt::format("{}: /{}", file, key));
  } else if (value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); })) {
    pattern.names = value.get<std::vector<std::string>>();
  } else {
    throw input_error("{}: /{}: expected a string or a list of strings", file, key);
  }
  return pattern;
}

void refuse_unsupported(const ConfigReader& config) {
  const auto kind = config.text("peft_type", "LORA");
  if (kind != "LORA")
    throw input_error("{}: found {}, only LORA adapters are supported", config.place("peft_type"), kind);
  if (config.text("bias", "none") != "none")
    throw input_error("{}: trained biases are not supported, expected \"none\"", config.place("bias"));
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora", "use_bdlora"})
    if (config.boolean(key, false)) throw input_error("{}: is true, which is not supported", config.place(key));
  for (const char* key :
       {"trainable_token_indices", "target_parameters", "alora_invocation_tokens", "layer_replication"})
    if (config.has(key)) throw input_error("{}: is set, which is not supported", config.place(key));
}

}  // namespace

AdapterConfig read_adapter_config(const fs::path& dir) {
  const auto file = dir / "adapter_config.json";
  const auto text = read_file(file);
  const auto reader = ConfigReader::parse(text, file.string());
  refuse_unsupported(reader);
  const auto json = Json::parse(text);
  AdapterConfig c;
  c.r = reader.integer("r", 8);
  c.alpha = reader.number("lora_alpha", 8);
  c.dropout = reader.number("lora_dropout", 0);
  if (c.r <= 0) throw input_error("{}: found {}, expected a positive rank", reader.place("r"), c.r);
  c.use_rslora = reader.boolean("use_rslora", false);
  c.target_modules = read_pattern(json, file.string(), "target_modules");
  c.exclude_modules = read_pattern(json, file.string(), "exclude_modules");
  c.modules_to_save = reader.texts("modules_to_save");
  c.base_model = reader.text("base_model_name_or_path", "");
  if (reader.has("layers_to_transform"))
    c.layers_to_transform = reader.is_array("layers_to_transform")
                                ? reader.integers("layers_to_transform")
                                : std::vector<int64_t>{reader.integer("layers_to_transform", 0)};
  c.rank_pattern = read_table(json, reader, "rank_pattern", &ConfigReader::integer);
  c.alpha_pattern = read_table(json, reader, "alpha_pattern", &ConfigReader::number);
  for (const auto& [pattern, rank] : c.rank_pattern)
    if (rank <= 0)
      throw input_error("{}/{}: found {}, expected a positive rank", reader.place("rank_pattern"), pattern, rank);
  c.original_layout = fs::exists(dir / kNonLoraTrainables);
  return c;
}

void write_adapter_config(const AdapterConfig& c, const fs::path& dir) {
  const auto pattern = [](const ModulePattern& p) {
    return p.regex ? Json(*p.regex) : p.names.empty() ? Json(nullptr) : Json(p.names);
  };
  const auto table = [](const auto& patterns) {
    Json object = Json::object();
    for (const auto& [key, value] : patterns) object[key] = value;
    return object;
  };
  const Json json = {
      {"peft_type", "LORA"},
      {"task_type", nullptr},
      {"base_model_name_or_path", c.base_model},
      {"inference_mode", true},
      {"r", c.r},
      {"lora_alpha", c.alpha},
      {"lora_dropout", c.dropout},
      {"bias", "none"},
      {"use_rslora", c.use_rslora},
      {"target_modules", pattern(c.target_modules)},
      {"exclude_modules", pattern(c.exclude_modules)},
      {"modules_to_save", c.modules_to_save.empty() ? Json(nullptr) : Json(c.modules_to_save)},
      {"rank_pattern", table(c.rank_pattern)},
      {"alpha_pattern", table(c.alpha_pattern)},
      {"layers_to_transform", c.layers_to_transform.empty() ? Json(nullptr) : Json(c.layers_to_transform)},
      {"fan_in_fan_out", false},
      {"init_lora_weights", true},
      {"use_dora", false}};
  write_file_atomic(dir / "adapter_config.json", json.dump(2) + "\n");
}

}  // namespace vlmtune
