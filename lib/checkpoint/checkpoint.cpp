#include "lib/checkpoint/checkpoint.h"

#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/errors.h"

namespace vlmtune {
namespace fs = std::filesystem;
using Json = nlohmann::json;
namespace {

/// The weight_map of an index file: tensor -> shard. Every shard must exist before anything is allocated.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  Json json;
  try {
    json = Json::parse(read_file(index));
  } catch (const Json::exception& error) {
    throw input_error("{}: is not valid JSON ({})", index.string(), error.what());
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw input_error("{}: /weight_map is missing or not an object", index.string());
  std::map<std::string, std::string> map;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string() || fs::path(shard.get<std::string>()).filename() != shard.get<std::string>())
      throw input_error("{}: /weight_map/{}: expected the name of a shard beside the index", index.string(), tensor);
    map[tensor] = shard.get<std::string>();
  }
  return map;
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& dir) {
  Checkpoint result;
  result.path_ = dir;
  if (!fs::is_directory(dir)) throw input_error("{}: is not a folder with a model", dir.string());
  constexpr const char* kNames[] = {"model.safetensors", "pytorch_model.bin"};
  fs::path index;
  for (const char* name : kNames) {
    if (fs::exists(dir / name)) {
      result.add_file(dir / name);
      return result;
    }
    index = dir / (std::string(name) + ".index.json");
    if (fs::exists(index)) break;
  }
  if (!fs::exists(index))
    throw input_error("{}: holds no model: no model.safetensors, pytorch_model.bin or index of one of them",
                      dir.string());
  const auto weight_map = read_weight_map(index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  for (const auto& shard : shards)
    if (!fs::is_regular_file(dir / shard)) throw input_error("{}: shard {} is missing", index.string(), shard);
  for (const auto& shard : shards) result.add_file(dir / shard);
  for (const auto& [tensor, shard] : weight_map)
    if (!result.has(tensor) || result.file_of(tensor).filename() != shard)
      throw input_error("{}: tensor \"{}\" is not in shard {}", index.string(), tensor, shard);
  return result;
}

Checkpoint Checkpoint::open_file(const fs::path& file) {
  Checkpoint result;
  result.path_ = file;
  result.add_file(file);
  return result;
}

void Checkpoint::add_file(const fs::path& file) {
  files_.push_back(TensorFile::open(file));
  for (const auto& [name, entry] : files_.back().entries())
    if (!where_.emplace(name, files_.size() - 1).second)
      throw input_error("{}: tensor \"{}\" is also in {}", file.string(), name, file_of(name).string());
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : where_) names.push_back(name);
  return names;
}

const TensorEntry& Checkpoint::entry(const std::string& name) const {
  return files_.at(where_.at(name)).entries().at(name);
}
const fs::path& Checkpoint::file_of(const std::string& name) const { return files_.at(where_.at(name)).path(); }
torch::Tensor Checkpoint::view(const std::string& name) const { return files_.at(where_.at(name)).view(name); }
void Checkpoint::drop(const std::string& name) const { files_.at(where_.at(name)).drop(name); }

}  // namespace vlmtune
