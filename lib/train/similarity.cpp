#include "lib/train/similarity.h"

#include "lib/base/errors.h"
#include "lib/data/packing.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"
#include "lib/models/similarity.h"

namespace vlmtune {
namespace {

/// Mean of some rows of states [N, D], in fp32.
Tensor mean_of(const Tensor& states, Tensor&& rows) {
  return states.index_select(0, to_device(std::move(rows), states.device())).mean(0, /*keepdim=*/false, torch::kFloat);
}

/// How many of the batch's pictures, from `next` on, fill a row's slots.
size_t count_pictures(const VlmModel& model, const ImageInputs& images, size_t next, int64_t slots) {
  size_t count = 0;
  for (; slots > 0 && next + count < images.shapes.size(); ++count)
    slots -= model.config().vision->image_tokens(images.shapes[next + count]);
  return count;
}

}  // namespace

Tensor embed_texts(const VlmModel& model, const std::vector<std::vector<int64_t>>& texts, torch::ScalarType type,
                   const TrainingMode& mode) {
  size_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  const auto count = static_cast<int64_t>(texts.size()), columns = padded_length(static_cast<int64_t>(longest));
  const auto ids = torch::zeros({count, columns}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const auto& text = texts[static_cast<size_t>(i)];
    std::copy(text.begin(), text.end(), ids.data_ptr<int64_t>() + i * columns);
  }
  const auto& language_model = model.language_model();
  const auto hidden =
      language_model.forward(language_model.embed(ids, type), {.positions = model.positions(ids, {}, {}),
                                                               .left_padding = {},
                                                               .training = mode.training,
                                                               .recompute = mode.language_checkpointing});
  std::vector<Tensor> means;
  for (int64_t i = 0; i < count; ++i)
    means.push_back(mean_of(hidden[i], torch::arange(static_cast<int64_t>(texts[static_cast<size_t>(i)].size()))));
  return model.similarity_head().embed_texts(torch::stack(means));
}

PictureTextPairs embed_pairs(const VlmModel& model, const ModelBatch& batch, const Tensor& tokens,
                             const TrainingMode& mode) {
  const MemoryScope scope(MemoryCategory::kActivations);
  std::vector<Tensor> pictures;
  std::vector<std::vector<int64_t>> texts;
  size_t next_picture = 0;
  for (int64_t row = 0; row < batch.ids.size(0); ++row) {
    auto slots = (batch.ids[row] == model.config().image_token_id).nonzero().squeeze(1);
    const auto text = batch.ids[row].masked_select(batch.labels[row] != kIgnoreLabel);
    const auto count = count_pictures(model, batch.images, next_picture, slots.numel());
    next_picture += count;
    if (count != 1 || text.numel() == 0) continue;
    pictures.push_back(mean_of(tokens[row], std::move(slots)));
    texts.emplace_back(text.data_ptr<int64_t>(), text.data_ptr<int64_t>() + text.numel());
  }
  if (texts.empty()) return {};
  return {unit_vectors(torch::stack(pictures)), embed_texts(model, texts, tokens.scalar_type(), mode)};
}

}  // namespace vlmtune
