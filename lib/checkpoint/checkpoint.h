// A model folder: one model.safetensors or pytorch_model.bin, or the shards that its index names, seen as one set of tensors.
#pragma once
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lib/checkpoint/tensor_file.h"

namespace vlmtune {

class Checkpoint {
 public:
  /// `dir` holds the model; nothing but headers is read here. Errors: input_error that names the missing shard, tensor...
  static Checkpoint open(const std::filesystem::path& dir);
  /// A single file, whatever its name.
  static Checkpoint open_file(const std::filesystem::path& file);

  bool has(const std::string& name) const { return where_.contains(name); }
  std::vector<std::string> names() const;
  const TensorEntry& entry(const std::string& name) const;
  const std::filesystem::path& file_of(const std::string& name) const;
  /// See TensorFile::view and drop.
  torch::Tensor view(const std::string& name) const;
  void drop(const std::string& name) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void add_file(const std::filesystem::path& file);
  std::filesystem::path path_;
  std::vector<TensorFile> files_;
  std::map<std::string, size_t> where_;  // tensor -> index into files_
};

}  // namespace vlmtune
