// The part of a model that makes features of pictures, in two classes that a family implements: what is known from its
// config.json alone, and the modules. Nothing outside a family's folder asks which family it is.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/image/boxes.h"
#include "lib/image/processor.h"
#include "lib/models/names.h"
#include "lib/nn/recompute.h"
#include "lib/nn/weight_stream.h"

namespace vlmtune {

/// The pictures and videos of a batch, in the order of their slots (row by row).
struct ImageInputs {
  std::vector<PictureShape> shapes;
  std::vector<Tensor> pixels;  ///< of each picture [tiles, C, h, w]
  Tensor features;             ///< in place of pixels: what the tower made of the pictures, joined along dimension 0
};

/// What the language model gets of the pictures of a batch: row i is for the i-th image slot.
struct ImageFeatures {
  Tensor tokens;                       // [image tokens, D], in place of the slots' embeddings
  std::vector<Tensor> deepstack = {};  // [image tokens, D] each, added to what leaves block 0, 1, ...
};

/// What is recomputed in backward, and whether dropout is on.
struct TrainingMode {
  bool training = false;
  RecomputePolicy language_checkpointing = {}, vision_checkpointing = {};
};

/// How a prompt spells a picture before its slot is filled; the brackets are for templates that know no pictures. A video has a
/// token of its own, if the family takes any.
struct PictureText {
  std::string token = "<image>", before, after, video_token = {};
  bool slot_per_time = false;  ///< each time of a video is a video of its own, in brackets behind its seconds
};

/// Where the tokens of a picture or video lie (M-RoPE).
struct TokenGrid {
  int64_t time = 1, height = 0, width = 0;
  int64_t time_step = 1;  ///< from one time to the next
};

/// What of a model is there: the features of pictures take the tower alone, training from features takes the rest.
enum class VlmParts { kAll, kTower, kWithoutTower };

/// A tower, which sees one picture at a time so that its numbers depend on no other, and a projector from its width to the
/// language model's. Tensors are visited under the names that transformers 5 has in memory.
class Vision {
 public:
  virtual ~Vision() = default;

  /// What the projector reads of a picture: pixels [tiles, C, h, w] -> VisionConfig::tower_shape, in `type`.
  virtual Tensor tower(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const = 0;
  /// `features`: the tower's of all pictures, joined along dimension 0.
  virtual ImageFeatures project(const Tensor& features, const std::vector<PictureShape>& shapes) const = 0;

  virtual void visit(const TensorVisitor& visitor) = 0;
  virtual void visit_linears(const LinearVisitor& visitor) = 0;

  std::unique_ptr<WeightStream> stream;  ///< of the tower's blocks, if their weights are not kept
};

class VisionConfig {
 public:
  virtual ~VisionConfig() = default;

  /// Image tokens of a picture; the one place that says so.
  virtual int64_t image_tokens(const PictureShape& picture) const = 0;
  /// Times, rows and columns of these tokens where their positions follow them (M-RoPE); else they are counted one by one.
  virtual std::optional<TokenGrid> token_grid(const PictureShape&) const { return std::nullopt; }
  /// Shape of what the tower makes of a picture.
  virtual std::vector<int64_t> tower_shape(const PictureShape& picture) const = 0;
  /// All that the tower's features depend on beside its weights and the pixels, as text.
  virtual std::string describe_tower() const = 0;

  /// The image processor of a model whose folder has none: for a dry run.
  virtual ImageProcessor default_processor() const = 0;
  /// Whether it is that of published folders too, which have none.
  virtual bool has_own_processor() const { return false; }
  /// Makes the processor of a folder the model's own. Errors: input_error, naming `place`, when it makes pictures that the
  /// tower does not take.
  virtual void adapt(ImageProcessor& processor, const std::string& place) const = 0;
  /// The same of a processor of videos' frames, of a family that takes videos; it may have been that of pictures.
  virtual void adapt_video(ImageProcessor&, const std::string&) const {}
  virtual PictureText picture_text() const { return {}; }
  /// The built-in chat template of a family whose folders bring none; empty: none.
  virtual std::string chat_template() const { return {}; }
  /// Tokens that end an answer beside those that the folder names.
  virtual std::vector<std::string> stop_tokens() const { return {}; }
  /// How the family writes the places of objects.
  virtual BoxStyle box_style() const { return BoxStyle::kLlava; }

  /// Modules that hold the projector, as PEFT's modules_to_save names them: what of it trains beside LoRA.
  virtual std::vector<std::string> projector_modules() const = 0;
  /// ... and the tower.
  virtual std::vector<std::string> tower_modules() const { return {"vision_tower"}; }
  /// Modules that checkpoints hold and the tower never runs.
  virtual std::vector<std::string> unused_modules() const { return {}; }
  /// Names in memory -> names in published checkpoints.
  virtual std::span<const Rename> published_names() const = 0;

  virtual std::unique_ptr<Vision> build(VlmParts parts) const = 0;
};

}  // namespace vlmtune
