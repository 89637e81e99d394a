// Configuration of a LLaVA model: vision tower, projector, language model; or of a bare language model.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/image/image.h"
#include "lib/models/decoder/config.h"
#include "lib/models/vit/config.h"

namespace vlmtune {

struct ProjectorConfig {
  int64_t num_linears = 2;  ///< 1: "linear", 2: "mlp2x_gelu", ...
  bool bias = true;
  Activation activation = Activation::kGelu;
};

struct LlavaConfig {
  std::string model_type = "llava";  ///< "llava", "llava_next", or the language model's own type when bare
  DecoderConfig text;
  std::optional<VitConfig> vision;  ///< absent: a bare language model
  ProjectorConfig projector;
  std::vector<int64_t> feature_states;  ///< hidden states of the tower that are used, 0 being the embeddings
  bool keep_class_token = false;        ///< strategy "full"; else the first feature is dropped
  int64_t image_token_id = -1;
  std::vector<ImageSize> grid_pinpoints;  ///< LLaVA-NeXT

  /// Blocks of the tower that are run: those up to the last hidden state in use.
  int64_t num_vision_layers() const;
  bool is_next() const { return model_type == "llava_next"; }
  /// Features that one tile gives to the language model.
  int64_t features_per_tile() const;
  /// Image tokens of a picture of this size; the one place that says so.
  int64_t image_tokens(ImageSize original) const;
};

/// What the user may choose over the checkpoint's config when a model is put together from parts.
struct LlavaChoices {
  std::optional<std::string> projector_type;  ///< "linear", "mlp2x_gelu"
  std::optional<int64_t> vision_select_layer;
};

/// Reads dir/config.json: a LLaVA or LLaVA-NeXT checkpoint, or a bare language model. With `vision_tower`, a bare
/// language model gets that tower and a new projector. Errors: input_error naming file and key.
LlavaConfig read_llava_config(const std::filesystem::path& dir,
                              const std::optional<std::filesystem::path>& vision_tower, const LlavaChoices& choices);

/// "linear" -> 1, "mlp2x_gelu" -> 2. Errors: usage_error.
int64_t parse_projector_type(const std::string& name);

}  // namespace vlmtune
