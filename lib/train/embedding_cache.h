// What a frozen vision tower made of pictures, computed once and kept in a folder.
#pragma once
#include <filesystem>
#include <map>
#include <unordered_map>

#include "lib/checkpoint/safetensors.h"

namespace vlmtune {

struct PictureFeatures {
  torch::Tensor values;  // of VlmModel::picture_features; looks into a mapped file
};

/// Shards: safetensors files with a tensor for each picture, under the SHA-256 of the picture's file. A shard is called by
/// the SHA-256 of its own content, so that damage of any kind shows, and stays as it is once it is there.
class EmbeddingCache {
 public:
  /// `context` says all that features depend on beside the picture; each context has a folder of its own under `dir`.
  /// Errors: io_error when the folder cannot be made.
  EmbeddingCache(const std::filesystem::path& dir, std::string context);

  const std::filesystem::path& folder() const { return folder_; }

  /// Reads what is there. Shards that are damaged or of another context are named and removed: for a process that holds
  /// the folder's lock.
  void open_shards();

  /// Writes a shard and makes it findable. Errors: io_error.
  void add(const std::map<std::string, torch::Tensor>& features);

  bool has(const std::string& key) const { return shards_.contains(key); }
  size_t size() const { return shards_.size(); }

  /// Null when there is none. The pages of the file are let go with the features. Thread-safe.
  std::shared_ptr<const PictureFeatures> find(const std::string& key) const;

 private:
  void open_shard(const std::filesystem::path& file);
  std::filesystem::path folder_;
  std::string context_;
  std::unordered_map<std::string, std::shared_ptr<const TensorFile>> shards_;  // by the keys of pictures
};

}  // namespace vlmtune
