// LLaVA (Liu et al. 2023, arXiv 2304.08485, 2310.03744) and LLaVA-NeXT: image features, projected, stand in the text at
// their slots. A model without a tower is a plain language model.
#pragma once
#include <memory>

#include "kernels/device.h"
#include "lib/models/decoder/model.h"
#include "lib/models/llava/config.h"
#include "lib/models/vit/model.h"

namespace vlmtune {

/// The pictures of a batch, in the order of their slots (row by row).
struct ImageInputs {
  Tensor pixels;                   ///< [N, C, S, S], the tiles of all pictures one after the other
  Tensor features;                 ///< [N, P, F] in place of pixels: what tile_features made of them
  std::vector<int64_t> num_tiles;  ///< tiles of each picture
  std::vector<ImageSize> sizes;    ///< original size of each picture
};

/// What is recomputed in backward, and whether dropout is on.
struct TrainingMode {
  bool training = false;
  RecomputePolicy language_checkpointing = {}, vision_checkpointing = {};
};

/// What of a model is there: the features of pictures take the tower alone, training from features takes the rest.
enum class LlavaParts { kAll, kTower, kWithoutTower };

class LlavaModel {
 public:
  explicit LlavaModel(const LlavaConfig& config, LlavaParts parts = LlavaParts::kAll);

  /// What the projector reads of a picture: pixels [N, C, S, S] of its tiles -> the tower's selected states [N, P, F], in
  /// `type`. The numbers of a picture do not depend on others.
  Tensor tile_features(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const;

  /// Projected features of each picture [image tokens, D].
  std::vector<Tensor> encode_images(const ImageInputs& images, torch::ScalarType type, const TrainingMode& mode) const;
  /// ids [B, T] and pictures -> [B, T, D] in `type`. Errors: InternalError when slots and features do not match.
  Tensor embed(const Tensor& ids, const ImageInputs& images, torch::ScalarType type, const TrainingMode& mode) const;
  /// Hidden states [.., D] -> logits [.., V].
  Tensor logits(const Tensor& hidden) const;
  /// Sum over the labelled tokens of the negative log-likelihood (an fp32 scalar); labels [B, T] with -100 for none.
  Tensor loss_sum(const Tensor& hidden, const Tensor& labels, int64_t chunk_tokens) const;

  const Decoder& language_model() const { return language_model_; }
  bool has_vision() const { return config_.vision.has_value(); }
  /// Whether a tensor of the whole model is not in the parts that are there.
  bool leaves_out(const std::string& tensor_name) const;
  const LlavaConfig& config() const { return config_; }
  /// The head's weight [V, D]: the embedding's own tensor when tied.
  const Tensor& head_weight() const {
    return config_.text.tie_word_embeddings ? language_model_.embed_tokens : lm_head_.weight;
  }

  /// From here on dropout's random numbers follow from `seed`.
  void seed_dropout(uint64_t seed) const { kernels::seed_generators(seed, language_model_.embed_tokens.device()); }

  /// Every tensor under its name in transformers ("model.language_model.layers.0..."), a tied head left out.
  void visit(const TensorVisitor& visitor);
  void visit_linears(const LinearVisitor& visitor);
  /// From here on a block's weight is on the device only while the block computes. `source`: see WeightStream.
  void stream_weight(const std::string& name, const Tensor& on_device, const Tensor& source);
  /// Puts what streamed weights are read from in their place, which may be on the host: for writing the model.
  void end_streaming();

 private:
  Tensor project(const Tensor& features) const;
  Tensor pack_next(const Tensor& tiles, ImageSize original) const;

  LlavaConfig config_;
  LlavaParts parts_;
  Decoder language_model_;
  Linear lm_head_;
  std::unique_ptr<Vit> vision_tower_;
  std::vector<Linear> projector_;
  Tensor image_newline_;  // [D], LLaVA-NeXT
};

}  // namespace vlmtune
