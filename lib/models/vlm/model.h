// A vision-language model: the features of pictures stand in the text at their slots. Without a vision part it is a plain
// language model.
#pragma once
#include <memory>
#include <optional>

#include "kernels/device.h"
#include "lib/models/decoder/model.h"
#include "lib/models/similarity.h"
#include "lib/models/vlm/config.h"

namespace vlmtune {

/// What enters the language model.
struct Embedded {
  Tensor tokens;  // [B, T, D]
  DeepStack deepstack = {};
};

class VlmModel {
 public:
  explicit VlmModel(const VlmConfig& config, VlmParts parts = VlmParts::kAll);

  /// What the projector reads of a picture; see Vision::tower.
  Tensor picture_features(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const;
  /// Features of all pictures, at least one, for the language model.
  ImageFeatures encode_images(const ImageInputs& images, torch::ScalarType type, const TrainingMode& mode) const;
  /// ids [B, T] and pictures -> what enters the language model, in `type`. Errors: InternalError when slots and features do
  /// not match.
  Embedded embed(const Tensor& ids, const ImageInputs& images, torch::ScalarType type, const TrainingMode& mode) const;
  /// Positions of the tokens of a batch: [B or 1, T] where they are counted one by one, [3, B, T] with pictures and M-RoPE
  /// (Wang et al. 2024, arXiv 2409.12191). A row begins behind its left padding, and again where `first_keys` [B, T] says
  /// that a sample starts.
  Tensor positions(const Tensor& ids, const std::vector<PictureShape>& pictures,
                   const std::vector<int64_t>& left_padding, const Tensor& first_keys = {}) const;
  /// Hidden states [.., D] -> logits [.., V].
  Tensor logits(const Tensor& hidden) const;
  /// Sum over the labelled tokens of the negative log-likelihood (an fp32 scalar); labels [B, T] with -100 for none.
  Tensor loss_sum(const Tensor& hidden, const Tensor& labels, int64_t chunk_tokens) const;

  const Decoder& language_model() const { return language_model_; }
  /// Of a model whose config has one.
  const SimilarityHead& similarity_head() const { return similarity_head_.value(); }
  bool has_vision() const { return config_.vision != nullptr; }
  /// Whether a tensor of the whole model is not in the parts that are there.
  bool leaves_out(const std::string& tensor_name) const;
  const VlmConfig& config() const { return config_; }
  /// The head's weight [V, D]: the embedding's own tensor when tied.
  const Tensor& head_weight() const {
    return config_.text.tie_word_embeddings ? language_model_.embed_tokens : lm_head_.weight;
  }

  /// From here on dropout's random numbers follow from `seed`.
  void seed_dropout(uint64_t seed) const { kernels::seed_generators(seed, language_model_.embed_tokens.device()); }

  /// Every tensor under its name in transformers ("model.language_model.layers.0..."), a tied head left out.
  void visit(const TensorVisitor& visitor);
  void visit_linears(const LinearVisitor& visitor);
  /// From here on a block's weight is on the device only while the block computes. See WeightStream.
  void stream_weight(const std::string& name, const Tensor& on_device, const Tensor& source, bool in_file);
  /// Puts what streamed weights are read from in their place, which may be on the host: for writing the model.
  void end_streaming();

 private:
  /// Which tokens stand for pictures and videos.
  Tensor is_slot(const Tensor& ids) const;
  std::string language_prefix() const {
    const auto& own = config_.text.names.prefix;
    return !own.empty() ? own : has_vision() ? "model.language_model." : "model.";
  }

  VlmConfig config_;
  VlmParts parts_;
  Decoder language_model_;
  Linear lm_head_;
  std::unique_ptr<Vision> vision_;
  std::optional<SimilarityHead> similarity_head_;
};

}  // namespace vlmtune
