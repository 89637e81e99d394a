#include "lib/recipe/layers.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/recipe/aliases.h"
#include "lib/recipe/codec.h"
#include "lib/recipe/hardware.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// Resolves what can only be understood inside this layer: aliases, and the name of a device.
Layer finish_layer(std::string origin, Value content, const std::vector<fs::path>& hardware_dirs) {
  if (content.object() == nullptr)
    throw usage_error("{}: found {} at the top, expected an object", origin, inline_text(content).substr(0, 60));
  Layer layer{std::move(origin), std::move(*content.object())};
  resolve_aliases(layer.content, layer.origin);
  Value* hardware = layer.content.find("hardware");
  if (hardware != nullptr && hardware->text() != nullptr) {
    *hardware = read_hardware(*hardware->text(), hardware_dirs, layer.origin);
    layer.names_hardware = true;
  } else if (hardware != nullptr && hardware->object() != nullptr) {
    layer.names_hardware = hardware->object()->find("name") != nullptr || hardware->object()->find("device") != nullptr;
  }
  return layer;
}

void read_chain(const fs::path& file, const std::vector<fs::path>& hardware_dirs, std::vector<fs::path>& open,
                std::vector<Layer>& layers) {
  std::error_code error;
  const auto identity = fs::weakly_canonical(file, error);
  if (std::find(open.begin(), open.end(), identity) != open.end())
    throw usage_error("{}: /extends: the file extends itself, by way of {}", file.string(), open.back().string());
  open.push_back(identity);
  std::string text;
  try {
    text = read_file(file);
  } catch (const UserError& failure) {
    throw usage_error("{}", failure.what());
  }
  Value content = parse_document(text, file.string());
  if (content.object() != nullptr) {
    if (const Value* base = content.object()->find("extends"); base != nullptr) {
      if (base->text() == nullptr || base->text()->empty())
        throw usage_error("{}: /extends: found {}, expected a file name", file.string(), inline_text(*base));
      read_chain(file.parent_path() / *base->text(), hardware_dirs, open, layers);
      content.object()->erase("extends");
    }
  }
  layers.push_back(finish_layer(file.string(), std::move(content), hardware_dirs));
  open.pop_back();
}

/// The value of a --set: JSON when it parses as such, else the bare text.
Value set_value(const std::string& text, const std::string& origin) {
  const bool looks_like_json = text.starts_with('[') || text.starts_with('{') || text.starts_with('"');
  try {
    return parse_document(text, origin);
  } catch (const UserError&) {
    if (looks_like_json) throw;  // a broken list is a slip, not a name
    return text;
  }
}

void merge_value(Value& base, const Value& over) {
  if (base.object() == nullptr || over.object() == nullptr) {
    base = over;
    return;
  }
  for (const auto& [key, value] : *over.object()) merge_value((*base.object())[key], value);
}

void erase_setting(Object& document, std::string_view section, std::string_view key) {
  if (Value* found = document.find(section); found != nullptr && found->object() != nullptr)
    found->object()->erase(key);
}

}  // namespace

std::vector<Layer> read_file_layers(const fs::path& file, const std::vector<fs::path>& hardware_dirs) {
  std::vector<Layer> layers;
  std::vector<fs::path> open;
  read_chain(file, hardware_dirs, open, layers);
  return layers;
}

std::vector<Layer> read_set_layers(const std::vector<std::string>& sets, const std::vector<fs::path>& hardware_dirs) {
  std::vector<Layer> layers;
  for (const auto& argument : sets) {
    const auto origin = "--set " + argument;
    const auto equals = argument.find('=');
    if (equals == std::string::npos) throw usage_error("{}: expected key=value", origin);
    Value value = set_value(argument.substr(equals + 1), origin);
    size_t end = equals;
    for (size_t depth = 0; end != std::string::npos; ++depth) {  // from the last name to the first
      const auto dot = end == 0 ? std::string::npos : argument.rfind('.', end - 1);
      const auto begin = dot == std::string::npos ? 0 : dot + 1;
      if (begin == end || depth > 8) throw usage_error("{}: expected a dotted name such as lora.r before '='", origin);
      Object parent;
      parent[argument.substr(begin, end - begin)] = std::move(value);
      value = std::move(parent);
      end = dot;
    }
    layers.push_back(finish_layer(origin, std::move(value), hardware_dirs));
  }
  return layers;
}

void merge_layer(Object& base, const Layer& layer) {
  const Object& over = layer.content;
  if (layer.names_hardware) base.erase("hardware");
  for (const auto& [one, other] : kAlternatives) {
    const bool sets_one = find_setting(over, one.section, one.key) != nullptr;
    const bool sets_other = find_setting(over, other.section, other.key) != nullptr;
    if (sets_one && !sets_other) erase_setting(base, other.section, other.key);
    if (sets_other && !sets_one) erase_setting(base, one.section, one.key);
  }
  // A printed recipe holds the global batch and what it derived; another micro-batch derives anew.
  if (find_setting(over, "train", "per_device_batch_size") != nullptr &&
      find_setting(base, "train", "global_batch_size") != nullptr &&
      find_setting(over, "train", "gradient_accumulation_steps") == nullptr)
    erase_setting(base, "train", "gradient_accumulation_steps");
  for (const auto& [key, value] : over) merge_value(base[key], value);
}

const Value* find_setting(const Object& document, std::string_view section, std::string_view key) {
  const Value* found = document.find(section);
  if (found == nullptr || found->object() == nullptr) return nullptr;
  const Value* setting = found->object()->find(key);
  return setting == nullptr || setting->is_null() ? nullptr : setting;
}

}  // namespace vlmtune
