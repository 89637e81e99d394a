// Configuration of a model: a language model, and what gives it pictures.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lib/models/decoder/config.h"
#include "lib/models/vision.h"

namespace vlmtune {

struct VlmConfig {
  std::string model_type;  ///< as config.json has it
  DecoderConfig text;
  std::shared_ptr<const VisionConfig> vision;  ///< null: a bare language model
  int64_t image_token_id = -1, video_token_id = -1;
  bool similarity_head = false;  ///< the model can tell how well a picture and a text fit

  /// What a folder with all of the model holds.
  PartKind whole() const { return vision ? PartKind::kWhole : PartKind::kBare; }
  /// Tensors that checkpoints hold and the model does not use.
  bool is_unused(const std::string& canonical) const;
  /// The name that a tensor or module has in files that are written.
  std::string published_name(const std::string& canonical) const;
};

/// What the user may choose over the checkpoint's config when a model is put together from parts.
struct VlmChoices {
  std::optional<std::string> projector_type = {};  ///< "linear", "mlp2x_gelu"
  std::optional<int64_t> vision_select_layer = {};
  std::optional<int64_t> projector_width = {};  ///< of a new projector, between its layers
  bool original_layout = false;                 ///< to be written as LLaVA's own repository does
  bool similarity_head = false;
};

/// Reads dir/config.json: a model of a known family, or a bare language model. With `vision_tower`, a bare language model
/// gets that tower and a new projector. Errors: input_error naming file and key.
VlmConfig read_vlm_config(const std::filesystem::path& dir, const std::optional<std::filesystem::path>& vision_tower,
                          const VlmChoices& choices);

}  // namespace vlmtune
