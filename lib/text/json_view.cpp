#include "lib/text/json_view.h"

#include <nlohmann/json.hpp>

#include "lib/base/files.h"

namespace vlmtune {
namespace {

using Json = nlohmann::json;
constexpr int kMaxDepth = 200;

const Json& json(const void* node) { return *static_cast<const Json*>(node); }

std::string escape_pointer(std::string_view key) {
  std::string out;
  for (char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

}  // namespace

struct JsonView::Document {
  Json root;
  std::string origin;
};

JsonView JsonView::parse_file(const std::filesystem::path& path) { return parse(read_file(path), path.string()); }

JsonView JsonView::parse(std::string_view text, const std::string& origin) {
  auto document = std::make_shared<Document>();
  document->origin = origin;
  bool too_deep = false;
  auto watch_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  try {
    document->root = Json::parse(text, watch_depth);
  } catch (const Json::exception& error) {
    throw input_error("{}: not valid JSON: {}", origin, error.what());
  }
  if (too_deep) throw input_error("{}: JSON nested deeper than {} levels", origin, kMaxDepth);
  return JsonView(document, &document->root, "");
}

bool JsonView::is_null() const { return json(node_).is_null(); }
bool JsonView::is_object() const { return json(node_).is_object(); }
bool JsonView::is_array() const { return json(node_).is_array(); }
bool JsonView::is_string() const { return json(node_).is_string(); }
bool JsonView::is_bool() const { return json(node_).is_boolean(); }
bool JsonView::is_number() const { return json(node_).is_number(); }

std::optional<JsonView> JsonView::find(std::string_view key) const {
  const auto& node = json(node_);
  if (!node.is_object()) throw error(fmt::format("expected an object, found {}", node.type_name()));
  auto found = node.find(key);
  if (found == node.end() || found->is_null()) return std::nullopt;
  return JsonView(document_, &*found, pointer_ + "/" + escape_pointer(key));
}

JsonView JsonView::at(std::string_view key) const {
  auto found = find(key);
  if (!found) throw error(fmt::format("\"{}\" is missing", key));
  return *found;
}

size_t JsonView::size() const { return json(node_).size(); }

JsonView JsonView::item(size_t index) const {
  const auto& node = json(node_);
  if (!node.is_array()) throw error(fmt::format("expected an array, found {}", node.type_name()));
  if (index >= node.size()) throw error(fmt::format("expected more than {} items, found {}", index, node.size()));
  return JsonView(document_, &node[index], pointer_ + "/" + std::to_string(index));
}

void JsonView::each_item(const std::function<void(const JsonView&)>& visit) const {
  if (!is_array()) throw error(fmt::format("expected an array, found {}", json(node_).type_name()));
  for (size_t i = 0; i < size(); ++i) visit(item(i));
}

void JsonView::each_member(const std::function<void(const std::string&, const JsonView&)>& visit) const {
  const auto& node = json(node_);
  if (!node.is_object()) throw error(fmt::format("expected an object, found {}", node.type_name()));
  for (const auto& [key, value] : node.items())
    visit(key, JsonView(document_, &value, pointer_ + "/" + escape_pointer(key)));
}

void JsonView::each_integer(const std::function<void(const std::string&, int64_t)>& visit) const {
  const auto& node = json(node_);
  if (!node.is_object()) throw error(fmt::format("expected an object, found {}", node.type_name()));
  for (auto it = node.begin(); it != node.end(); ++it) {
    if (!it->is_number_integer()) JsonView(document_, &*it, pointer_ + "/" + escape_pointer(it.key())).as_integer();
    visit(it.key(), it->get<int64_t>());
  }
}

std::string JsonView::as_string() const {
  const auto& node = json(node_);
  if (!node.is_string()) throw error(fmt::format("expected a string, found {}", node.type_name()));
  return node.get<std::string>();
}

bool JsonView::as_bool() const {
  const auto& node = json(node_);
  if (!node.is_boolean()) throw error(fmt::format("expected true or false, found {}", node.type_name()));
  return node.get<bool>();
}

int64_t JsonView::as_integer() const {
  const auto& node = json(node_);
  bool fits = node.is_number_integer() && !(node.is_number_unsigned() && node.get<uint64_t>() > INT64_MAX);
  if (!fits) throw error(fmt::format("expected an integer, found {}", node.type_name()));
  return node.get<int64_t>();
}

double JsonView::as_number() const {
  const auto& node = json(node_);
  if (!node.is_number()) throw error(fmt::format("expected a number, found {}", node.type_name()));
  return node.get<double>();
}

std::string JsonView::string_or(std::string_view key, std::string_view fallback) const {
  auto found = find(key);
  return found ? found->as_string() : std::string(fallback);
}

bool JsonView::bool_or(std::string_view key, bool fallback) const {
  auto found = find(key);
  return found ? found->as_bool() : fallback;
}

std::string JsonView::type() const { return at("type").as_string(); }

UserError JsonView::error(const std::string& message) const {
  return input_error("{}: at {}: {}", document_->origin, pointer_.empty() ? "/" : pointer_, message);
}

const std::string& JsonView::origin() const { return document_->origin; }

}  // namespace vlmtune
