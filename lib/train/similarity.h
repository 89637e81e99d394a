// Pictures and texts of a batch as vectors for the similarity head.
#pragma once
#include "lib/train/batch.h"

namespace vlmtune {

/// Unit vectors [N, D] of the N rows that have one picture and supervised tokens.
struct PictureTextPairs {
  Tensor pictures, texts;
  int64_t count() const { return pictures.defined() ? pictures.size(0) : 0; }
};

/// The texts are the supervised tokens alone, which the language model reads without the picture.
/// `tokens`: what enters the language model [B, T, D]. Undefined vectors when no row is a pair.
PictureTextPairs embed_pairs(const VlmModel& model, const ModelBatch& batch, const Tensor& tokens,
                             const TrainingMode& mode);

/// Unit vectors [N, D] of texts given by their tokens.
Tensor embed_texts(const VlmModel& model, const std::vector<std::vector<int64_t>>& texts, torch::ScalarType type,
                   const TrainingMode& mode);

}  // namespace vlmtune
