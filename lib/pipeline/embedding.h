// data.embedding_cache: the features of all pictures of a run are there before it begins, so that it needs no tower.
#pragma once
#include "lib/pipeline/assemble.h"
#include "lib/train/embedding_cache.h"

namespace vlmtune {

/// All that the features of a picture depend on beside its file: every byte of the tower's weights as they are stored, their
/// types in memory, and how pixels are made.
std::string embedding_context(const Recipe& recipe, const InputParts& inputs);

/// What the tower makes of one picture, on the host.
Tensor picture_features(const VlmModel& tower, const ProcessedImage& image, torch::ScalarType type);

/// The recipe's cache with all pictures of the data sets that can be read; null when the recipe names none, or the model
/// takes no pictures. The tower is loaded while there are pictures to compute. One process at a time fills a cache, others
/// wait. Stops early at an interrupt (interrupt_signal), with what is done so far in place. Errors: io_error, input_error.
std::shared_ptr<const EmbeddingCache> prepare_embedding_cache(const Recipe& recipe, const InputParts& inputs,
                                                              const std::vector<Dataset>& datasets,
                                                              torch::Device device);

}  // namespace vlmtune
