#include "lib/models/config_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/base/errors.h"
#include "lib/base/files.h"

namespace vlmtune {
using Json = nlohmann::json;

struct ConfigReader::Node {
  Json json;
  std::string file, pointer;
};

namespace {

bool holds(const Json& value, int64_t*) { return value.is_number_integer(); }
bool holds(const Json& value, double*) { return value.is_number(); }
bool holds(const Json& value, bool*) { return value.is_boolean(); }
bool holds(const Json& value, std::string*) { return value.is_string(); }
template <typename T>
bool holds(const Json& value, std::vector<T>*) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const Json& v) { return holds(v, static_cast<T*>(nullptr)); });
}

}  // namespace

ConfigReader::ConfigReader(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
ConfigReader::~ConfigReader() = default;
ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader::ConfigReader(const ConfigReader&) = default;

ConfigReader ConfigReader::open(const std::filesystem::path& file) { return parse(read_file(file), file.string()); }

ConfigReader ConfigReader::parse(const std::string& text, const std::string& file) {
  auto json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) throw input_error("{}: is not a JSON object", file);
  return ConfigReader(std::make_shared<Node>(Node{std::move(json), file, ""}));
}

bool ConfigReader::has(const std::string& key) const {
  return node_->json.contains(key) && !node_->json[key].is_null();
}

std::string ConfigReader::place(const std::string& key) const {
  return node_->file + ": " + node_->pointer + "/" + key;
}

bool ConfigReader::mentions(const std::string& key) const { return node_->json.contains(key); }

ConfigReader ConfigReader::object(const std::string& key) const {
  if (!has(key))
    return ConfigReader(std::make_shared<Node>(Node{Json::object(), node_->file, node_->pointer + "/" + key}));
  if (!node_->json[key].is_object()) throw input_error("{}: expected an object", place(key));
  return ConfigReader(std::make_shared<Node>(Node{node_->json[key], node_->file, node_->pointer + "/" + key}));
}

ConfigReader ConfigReader::with(const std::string& key, const std::string& text) const {
  Node changed = *node_;
  changed.json[key] = text;
  return ConfigReader(std::make_shared<Node>(std::move(changed)));
}

template <typename T>
T ConfigReader::get(const std::string& key, const T& fallback, const char* expected) const {
  if (!has(key)) return fallback;
  const auto& value = node_->json[key];
  if (!holds(value, static_cast<T*>(nullptr)))
    throw input_error("{}: found {}, expected {}", place(key), value.dump(), expected);
  return value.get<T>();
}

int64_t ConfigReader::integer(const std::string& key, int64_t fallback) const {
  return get(key, fallback, "a whole number");
}
double ConfigReader::number(const std::string& key, double fallback) const { return get(key, fallback, "a number"); }
bool ConfigReader::boolean(const std::string& key, bool fallback) const { return get(key, fallback, "true or false"); }
std::string ConfigReader::text(const std::string& key, const std::string& fallback) const {
  return get(key, fallback, "a string");
}
std::vector<int64_t> ConfigReader::integers(const std::string& key) const {
  return get(key, std::vector<int64_t>{}, "a list of whole numbers");
}
std::vector<double> ConfigReader::numbers(const std::string& key) const {
  return get(key, std::vector<double>{}, "a list of numbers");
}
std::vector<std::string> ConfigReader::texts(const std::string& key) const {
  return get(key, std::vector<std::string>{}, "a list of strings");
}
std::vector<std::vector<int64_t>> ConfigReader::integer_pairs(const std::string& key) const {
  return get(key, std::vector<std::vector<int64_t>>{}, "a list of [height, width] pairs");
}
bool ConfigReader::is_array(const std::string& key) const { return has(key) && node_->json[key].is_array(); }

void ConfigReader::check_sizes(std::initializer_list<std::pair<const char*, int64_t>> sizes) const {
  constexpr int64_t kLargest = 1 << 24;
  for (const auto& [key, value] : sizes)
    if (value <= 0 || value > kLargest) throw input_error("{}: found {}, expected a positive size", place(key), value);
}

}  // namespace vlmtune
