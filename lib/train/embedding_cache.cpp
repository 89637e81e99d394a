#include "lib/train/embedding_cache.h"

#include "lib/base/errors.h"
#include "lib/base/log.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

constexpr const char* kContext = "context";

}  // namespace

EmbeddingCache::EmbeddingCache(const fs::path& dir, std::string context)
    : folder_(dir / sha256_hex(context).substr(0, 16)), context_(std::move(context)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw io_error("{}: cannot be made ({})", folder_.string(), error.message());
}

void EmbeddingCache::open_shard(const fs::path& file) {
  const auto shard = std::make_shared<const TensorFile>(TensorFile::open(file));
  const auto found = shard->metadata().find(kContext);
  if (found == shard->metadata().end() || found->second != context_)
    throw input_error("{}: holds features of another tower or of other settings", file.string());
  for (const auto& [key, entry] : shard->entries()) shards_[key] = shard;
}

void EmbeddingCache::open_shards() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  for (const auto& file : files) {
    try {
      if (sha256_file(file) != file.stem())
        throw input_error("{}: its content is not what its name says", file.string());
      open_shard(file);
    } catch (const UserError& error) {
      log_warning("embedding cache: {}; its pictures are computed again", error.what());
      std::error_code ignored;  // another look at it does no harm
      fs::remove(file, ignored);
    }
  }
}

void EmbeddingCache::add(const std::map<std::string, torch::Tensor>& features) {
  const auto unnamed = folder_ / "unnamed";
  remove_stale_temporaries(unnamed);
  write_safetensors(unnamed, features, {{kContext, context_}});
  const auto shard = folder_ / (sha256_file(unnamed) + ".safetensors");
  std::error_code error;
  fs::rename(unnamed, shard, error);
  if (error) throw io_error("{}: cannot be put in place ({})", shard.string(), error.message());
  sync_directory(folder_);
  open_shard(shard);
}

std::shared_ptr<const PictureFeatures> EmbeddingCache::find(const std::string& key) const {
  const auto at = shards_.find(key);
  if (at == shards_.end()) return nullptr;
  return {new PictureFeatures{at->second->view(key)}, [shard = at->second, key](const PictureFeatures* features) {
            delete features;
            shard->drop(key);
          }};
}

}  // namespace vlmtune
