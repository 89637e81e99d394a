#include "lib/train/batch.h"

#include <algorithm>

#include "lib/data/packing.h"
#include "lib/memory/scope.h"
#include "lib/train/embedding_cache.h"

namespace vlmtune {
namespace {

void separate_samples(const std::vector<Example>& rows, ModelBatch& batch) {
  const auto tokens = batch.ids.size(1);
  batch.first_keys = torch::empty(batch.ids.sizes(), torch::kInt);
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto& starts = rows[row].sample_starts;
    const auto at = static_cast<int64_t>(row) * tokens;
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t begin = starts[i],
                    end = i + 1 < starts.size() ? starts[i + 1] : tokens;  // padding goes with the last
      std::fill_n(batch.first_keys.data_ptr<int32_t>() + at + begin, end - begin, static_cast<int32_t>(begin));
    }
  }
}

}  // namespace

Tensor picture_pixels(const ProcessedImage& image) {
  auto* data = const_cast<float*>(image.pixels.data());
  return torch::from_blob(data, {image.tiles, 3, image.height, image.width}, torch::kFloat);
}

ModelBatch make_batch(const std::vector<Example>& examples, int64_t pad_id, PaddingSide side) {
  size_t longest = 0;
  for (const auto& example : examples) longest = std::max(longest, example.ids.size());
  const auto rows = static_cast<int64_t>(examples.size());
  const int64_t columns =
      side == PaddingSide::kRight ? padded_length(static_cast<int64_t>(longest)) : static_cast<int64_t>(longest);
  const MemoryScope scope(MemoryCategory::kInputs);
  ModelBatch batch{torch::full({rows, columns}, pad_id, torch::kLong),
                   torch::full({rows, columns}, kIgnoreLabel, torch::kLong),
                   {},
                   {}};
  std::vector<Tensor> features;
  for (int64_t row = 0; row < rows; ++row) {
    const auto& example = examples[static_cast<size_t>(row)];
    const auto length = static_cast<int64_t>(example.ids.size());
    const int64_t begin = side == PaddingSide::kLeft ? columns - length : 0;
    std::copy(example.ids.begin(), example.ids.end(), batch.ids.data_ptr<int64_t>() + row * columns + begin);
    if (!example.labels.empty())
      std::copy(example.labels.begin(), example.labels.end(), batch.labels.data_ptr<int64_t>() + row * columns + begin);
    if (side == PaddingSide::kLeft) batch.left_padding.push_back(begin);
    for (const auto& image : example.images) {
      if (image.features)
        features.push_back(image.features->values);
      else
        batch.images.pixels.push_back(picture_pixels(image));
      batch.images.shapes.push_back(image);
    }
  }
  if (!features.empty()) batch.images.features = features.size() == 1 ? features[0] : torch::cat(features, 0);
  const bool packed =
      std::any_of(examples.begin(), examples.end(), [](const auto& row) { return row.sample_starts.size() > 1; });
  if (packed) separate_samples(examples, batch);
  return batch;
}

}  // namespace vlmtune
