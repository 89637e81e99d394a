// Samples to tensors.
#pragma once
#include "lib/data/example.h"
#include "lib/models/vlm/model.h"

namespace vlmtune {

struct ModelBatch {
  Tensor ids;     // [B, T] int64, padded on the right (training) or on the left (generation)
  Tensor labels;  // [B, T] int64, -100 where nothing is trained
  ImageInputs images;
  std::vector<int64_t> left_padding;  // [B], empty when padded on the right
  Tensor first_keys = {};             // [B, T] int32, where the sample of a token starts; undefined without packed rows
};

/// The pixels of a picture where they are [tiles, 3, h, w].
Tensor picture_pixels(const ProcessedImage& image);

enum class PaddingSide { kRight, kLeft };

/// Pads the samples to the longest (on the right: to padded_length) with `pad_id`, whose value matters to nothing: padding is masked by length.
/// Pixels are not copied, nor are the features of a single picture: the examples outlive the batch.
ModelBatch make_batch(const std::vector<Example>& examples, int64_t pad_id, PaddingSide side);
ModelBatch make_batch(std::vector<Example>&& examples, int64_t pad_id, PaddingSide side) = delete;

}  // namespace vlmtune
