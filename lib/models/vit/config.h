// Configuration of the vision transformers that serve as towers: CLIP, SigLIP, DINOv2 and the first Qwen-VL's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "lib/nn/activation.h"

namespace vlmtune {

class ConfigReader;

struct VitConfig {
  bool siglip = false;  ///< no class token and no norm before the blocks; the patch projection has a bias
  bool dinov2 = false;  ///< no norm before the blocks but one behind them, scaled branches, a bias as SigLIP's
  bool bigg = false;    ///< OpenCLIP's ViT-bigG as Qwen-VL has it: no class token, fused projections
  int64_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0, num_attention_heads = 0;
  int64_t num_channels = 3, image_size = 0, patch_size = 0;
  int64_t stored_side =
      0;  ///< patches per side that positions are stored for, resized where pictures have others; 0: the same
  double layer_norm_eps = 1e-5;
  Activation activation = Activation::kQuickGelu;

  bool has_class_token() const { return !siglip && !bigg; }
  int64_t patches_per_side() const { return image_size / patch_size; }
  int64_t num_positions() const {
    const int64_t side = stored_side > 0 ? stored_side : patches_per_side();
    return side * side + (has_class_token() ? 1 : 0);
  }
};

/// Reads a vision config with transformers' defaults; a whole CLIP or SigLIP model's config is looked into. `side`: of the pictures
/// that the tower is given, where it takes any. Errors: input_error.
VitConfig read_vit_config(const ConfigReader& config, std::optional<int64_t> side = std::nullopt);

}  // namespace vlmtune
