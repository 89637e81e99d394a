// Configuration of LLaVA's way to pictures: a tower, some of its hidden states, a projector.
#pragma once
#include "lib/models/tower.h"
#include "lib/models/vlm/config.h"

namespace vlmtune {

struct ProjectorConfig {
  int64_t num_linears = 2;  ///< 1: "linear", 2: "mlp2x_gelu", ...
  int64_t width = 0;        ///< between the linear layers
  bool bias = true;
  Activation activation = Activation::kGelu;
};

struct LlavaVisionConfig : VisionConfig {
  std::shared_ptr<const TowerConfig> tower;
  ProjectorConfig projector;
  std::vector<int64_t> feature_states;    ///< hidden states of the tower that are used, all of one grid
  bool keep_class_token = false;          ///< strategy "full"; else the first feature is dropped
  std::vector<ImageSize> grid_pinpoints;  ///< LLaVA-NeXT and OneVision; empty: a picture is one tile
  int max_tiles =
      0;  ///< OneVision: tiles' worth of features that a picture keeps, alone in its row; in company it is one tile
  bool original_layout = false;  ///< files are written under the names of LLaVA's own repository
  bool pads_pictures = false;    ///< to a square with the mean colour, unless the recipe says otherwise
  int64_t text_hidden_size = 0;

  bool is_next() const { return !grid_pinpoints.empty(); }
  bool is_onevision() const { return max_tiles > 0; }
  /// The last hidden state in use.
  int64_t last_state() const;
  /// Features along a side of a tile.
  int64_t grid_side() const { return tower->grid_side(last_state()); }
  /// Features that one tile gives to the language model.
  int64_t features_per_tile() const;
  /// Features along a side of a video's frame: every other one, scaled (OneVision).
  int64_t frame_side() const { return (grid_side() + 1) / 2; }
  /// Channels of such a feature before the projector.
  int64_t feature_size() const;

  int64_t image_tokens(const PictureShape& picture) const override;
  std::vector<int64_t> tower_shape(const PictureShape& picture) const override;
  std::string describe_tower() const override;
  ImageProcessor default_processor() const override;
  void adapt(ImageProcessor& processor, const std::string& place) const override;
  void adapt_video(ImageProcessor& processor, const std::string& place) const override;
  PictureText picture_text() const override;
  std::vector<std::string> projector_modules() const override;
  std::vector<std::string> unused_modules() const override;
  std::span<const Rename> published_names() const override;
  std::unique_ptr<Vision> build(VlmParts parts) const override;
};

/// A LLaVA, LLaVA-NeXT or LLaVA-OneVision checkpoint. Errors: input_error.
VlmConfig read_llava(const ConfigReader& config, const VlmChoices& choices);

/// A bare language model with a tower and a projector that is new. `side`: see read_tower_config. Errors: input_error, usage_error.
VlmConfig compose_llava(const ConfigReader& language_model, const ConfigReader& tower, const VlmChoices& choices,
                        std::optional<int64_t> side = std::nullopt);

/// The vision part of a model that was read or composed by the functions above.
const LlavaVisionConfig& llava_vision(const VlmConfig& config);

/// Whether the model's files are in the layout of LLaVA's own repository.
bool in_original_layout(const VlmConfig& config);

/// "linear" -> 1, "mlp2x_gelu" -> 2. Errors: usage_error.
int64_t parse_projector_type(const std::string& name);

}  // namespace vlmtune
