// Configuration of the vision part of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: a ViT over pictures of any size, and a merger of
// neighbouring patches.
#pragma once
#include "lib/models/vlm/config.h"
#include "lib/nn/activation.h"

namespace vlmtune {

class ConfigReader;

/// What the families call the same modules.
struct QwenVlNames {
  std::string_view mlp;                        ///< of the ViT's MLP: "fc", "linear_fc", before 1 and 2
  std::string_view merger_norm, merger_fc[2];  ///< below "merger"
};

struct QwenVlVisionConfig : VisionConfig {
  int64_t depth = 0, hidden_size = 0, intermediate_size = 0, num_heads = 0, out_hidden_size = 0;
  int64_t in_channels = 3, patch_size = 0, temporal_patch_size = 2, merge_size = 2;
  Activation activation = Activation::kQuickGelu;
  double rope_theta = 10000;
  const QwenVlNames* names = nullptr;
  std::span<const Rename> published;  ///< names in published checkpoints

  BoxStyle boxes = BoxStyle::kQwen2Vl;

  // Qwen2.5-VL
  bool gated = false;       ///< RMS norms and gated MLPs
  int64_t window_size = 0;  ///< pixels along a side, within which patches see each other; 0: everywhere
  std::vector<int64_t> full_attention_blocks;  ///< those without windows
  int64_t positions_per_second = 0;            ///< of a video; 0: one for each of its times

  // Qwen3-VL
  bool patch_bias = false, slot_per_time = false;
  int64_t table_side = 0;  ///< of a square of learned positions, which is stretched over the picture; 0: none
  std::vector<int64_t> deepstack_blocks;  ///< whose outputs are merged as well, ascending

  int64_t head_dim() const { return hidden_size / num_heads; }
  /// States of the ViT that are merged: what leaves the last block, and the deepstack blocks.
  int64_t num_states() const { return 1 + static_cast<int64_t>(deepstack_blocks.size()); }
  /// Patches that become one token.
  int64_t patches_per_token() const { return merge_size * merge_size; }
  /// Parts of a video that share no attention, each of as many frames as a patch; 1 of a picture.
  int64_t times(const PictureShape& picture) const;
  /// Rows and columns of patches at a time.
  ImageSize patch_grid(const PictureShape& picture) const;

  int64_t image_tokens(const PictureShape& picture) const override;
  std::optional<TokenGrid> token_grid(const PictureShape& picture) const override;
  std::vector<int64_t> tower_shape(const PictureShape& picture) const override;
  std::string describe_tower() const override;
  ImageProcessor default_processor() const override;
  void adapt(ImageProcessor& processor, const std::string& place) const override;
  void adapt_video(ImageProcessor& processor, const std::string& place) const override;
  BoxStyle box_style() const override { return boxes; }
  PictureText picture_text() const override;
  std::vector<std::string> projector_modules() const override;
  std::vector<std::string> tower_modules() const override;
  std::span<const Rename> published_names() const override { return published; }
  std::unique_ptr<Vision> build(VlmParts parts) const override;
};

/// A Qwen2-VL, Qwen2.5-VL or Qwen3-VL checkpoint. Errors: input_error, usage_error.
VlmConfig read_qwen_vl(const ConfigReader& config, const VlmChoices& choices);

}  // namespace vlmtune
