#include "lib/pipeline/embedding.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <thread>
#include <unordered_set>

#include "lib/base/errors.h"
#include "lib/base/folder_lock.h"
#include "lib/base/interrupt.h"
#include "lib/base/log.h"
#include "lib/image/source.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"
#include "lib/pipeline/options.h"

namespace vlmtune {
namespace {

constexpr int kFormat = 1;  // of the context and the shards; another number makes older caches stale
constexpr int64_t kShardBytes = 64 << 20;
constexpr int64_t kRowsAtOnce = 256, kPicturesAtOnce = 16;

/// A picture of the data: image `image` of row `row`.
struct Picture {
  const Dataset* dataset;
  int64_t row;
  size_t image;
  std::string key;
};

/// SHA-256 over names, types, shapes and bytes of the tower's tensors in their files.
std::string hash_tower(const WeightSource& source, const VlmConfig& config) {
  const auto& checkpoint = source.checkpoint;
  std::vector<std::pair<std::string, std::string>> tensors;  // canonical name, name in the file
  for (const auto& name : checkpoint.names()) {
    const auto canonical = canonical_tensor_name(name, source.kind);
    if (component_of(canonical) == Component::kVisionTower && !config.is_unused(canonical))
      tensors.emplace_back(canonical, name);
  }
  std::sort(tensors.begin(), tensors.end());
  std::vector<std::string> hashes(tensors.size());
  at::parallel_for(0, static_cast<int64_t>(tensors.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& [canonical, name] = tensors[static_cast<size_t>(i)];
      const auto& entry = checkpoint.entry(name);
      const auto values = checkpoint.view(name);
      hashes[static_cast<size_t>(i)] =
          fmt::format("{} {} {} {}", canonical, entry.dtype, fmt::join(entry.shape, "x"),
                      sha256_hex({static_cast<const char*>(values.data_ptr()), values.nbytes()}));
      checkpoint.drop(name);
    }
  });
  return sha256_hex(fmt::format("{}", fmt::join(hashes, "\n")));
}

/// The tower's layers that are held in few bits.
std::string describe_quantization(const Recipe& recipe, const VlmConfig& config) {
  const auto options = quantization_options(recipe.quantization);
  std::string layers;
  VlmModel(config, VlmParts::kTower).visit_linears([&](const std::string& name, Linear&) {
    if (options.applies(name)) layers += " " + name;
  });
  if (layers.empty()) return "none";
  return fmt::format("type {} double {}{}", static_cast<int>(options.type), options.double_quant, layers);
}

/// Every picture once, whatever the number of its rows. Rows and pictures that cannot be read are left to the loader, which
/// names them.
std::vector<Picture> distinct_pictures(const std::vector<Dataset>& datasets) {
  std::vector<Picture> pictures;
  std::unordered_set<std::string> seen;
  int64_t total = 0, done = 0;
  for (const auto& dataset : datasets) total += dataset.size();
  ProgressBar progress("embedding cache: looking at pictures", "row", total);
  for (const auto& dataset : datasets)
    for (int64_t first = 0; first < dataset.size() && interrupt_signal() == 0; first += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, dataset.size() - first);
      std::vector<std::vector<Picture>> found(static_cast<size_t>(count));
      at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) try {
            const auto row = dataset.row(first + i);
            for (size_t image = 0; image < row.images.size(); ++image)
              found[static_cast<size_t>(i)].push_back(
                  {&dataset, first + i, image, sha256_hex(read_image_source(row.images[image], {}))});
          } catch (const UserError&) {
          }
      });
      for (auto& of_row : found)
        for (auto& picture : of_row)
          if (seen.insert(picture.key).second) pictures.push_back(std::move(picture));
      progress.update(done += count, "");
    }
  return pictures;
}

/// Pixels of a picture, and the key of what its file holds now; nothing when it cannot be read.
std::optional<std::pair<std::string, ProcessedImage>> read_pixels(const Picture& picture,
                                                                  const ImageProcessor& processor) {
  try {
    const auto source = picture.dataset->row(picture.row).images.at(picture.image);
    const auto encoded = read_image_source(source, {});
    return std::pair(sha256_hex(encoded),
                     processor.process(decode_image(std::as_bytes(std::span(encoded)), image_source_name(source))));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

void compute_missing(const Recipe& recipe, const InputParts& inputs, const std::vector<Picture>& missing,
                     EmbeddingCache& cache, torch::Device device) {
  const auto tower = assemble_tower(recipe, inputs.config, device);
  const auto type = to_scalar_type(recipe.precision.compute);
  const auto total = static_cast<int64_t>(missing.size());
  std::map<std::string, Tensor> shard;
  int64_t bytes = 0;
  const auto write_shard = [&] {
    if (!shard.empty()) cache.add(shard);
    shard.clear();
    bytes = 0;
  };
  ProgressBar progress("embedding cache: filling", "picture", total);
  for (int64_t first = 0; first < total && interrupt_signal() == 0; first += kPicturesAtOnce) {
    const int64_t count = std::min(kPicturesAtOnce, total - first);
    std::vector<std::optional<std::pair<std::string, ProcessedImage>>> read(static_cast<size_t>(count));
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        read[static_cast<size_t>(i)] = read_pixels(missing[static_cast<size_t>(first + i)], *inputs.image_processor);
    });
    for (const auto& picture : read) {
      if (!picture) continue;
      const auto& [key, image] = *picture;
      const auto features = picture_features(*tower.model, image, type);
      if (shard.emplace(key, features).second) bytes += static_cast<int64_t>(features.nbytes());
      if (bytes >= kShardBytes) write_shard();
    }
    progress.update(first + count, "");
  }
  write_shard();
}

/// Waits for the folder's lock as long as nobody interrupts.
void wait_for(FolderLock& lock, const std::filesystem::path& folder) {
  if (lock.acquire()) return;
  log_info("embedding cache: waiting for another process that fills {}", folder.string());
  while (!lock.acquire() && interrupt_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

}  // namespace

std::string embedding_context(const Recipe& recipe, const InputParts& inputs) {
  const auto& config = inputs.config;
  return fmt::format("format {}; tower {}: {}; weights {}, quantised: {}; computed in {}; pixels: {}", kFormat,
                     hash_tower(tower_source(recipe), config), config.vision->describe_tower(),
                     recipe_name(recipe.precision.parameters), describe_quantization(recipe, config),
                     recipe_name(recipe.precision.compute), inputs.image_processor->settings());
}

Tensor picture_features(const VlmModel& tower, const ProcessedImage& image, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  return to_host(tower.picture_features(picture_pixels(image), type, {}).contiguous());
}

std::shared_ptr<const EmbeddingCache> prepare_embedding_cache(const Recipe& recipe, const InputParts& inputs,
                                                              const std::vector<Dataset>& datasets,
                                                              torch::Device device) {
  if (!recipe.data.embedding_cache) return nullptr;
  if (!inputs.config.vision) {
    log_warning("data.embedding_cache has no effect: the model takes no pictures");
    return nullptr;
  }
  const PhaseScope phase("embedding cache");
  const auto cache = std::make_shared<EmbeddingCache>(*recipe.data.embedding_cache, embedding_context(recipe, inputs));
  FolderLock lock(cache->folder());
  wait_for(lock, cache->folder());
  if (interrupt_signal() != 0) return nullptr;
  cache->open_shards();
  auto pictures = distinct_pictures(datasets);
  const auto total = pictures.size();
  std::erase_if(pictures, [&](const Picture& picture) { return cache->has(picture.key); });
  const auto found = total - pictures.size();
  log_info("embedding cache: {} of {} pictures found ({} %)", found, total, total > 0 ? 100 * found / total : 100);
  if (!pictures.empty() && interrupt_signal() == 0) compute_missing(recipe, inputs, pictures, *cache, device);
  return cache;
}

}  // namespace vlmtune
