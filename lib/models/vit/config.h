// Configuration of the vision transformers that serve as towers: CLIP, SigLIP, DINOv2 and the first Qwen-VL's.
#pragma once
#include "lib/models/tower.h"
#include "lib/nn/activation.h"

namespace vlmtune {

/// State i is what leaves block i, DINOv2's last one normalised.
struct VitConfig : TowerConfig {
  bool siglip = false;  ///< no class token and no norm before the blocks; the patch projection has a bias
  bool dinov2 = false;  ///< no norm before the blocks but one behind them, scaled branches, a bias as SigLIP's
  bool bigg = false;    ///< OpenCLIP's ViT-bigG as Qwen-VL has it: no class token, fused projections
  int64_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0, num_attention_heads = 0;
  int64_t num_channels = 3, patch_size = 0;
  int64_t stored_side =
      0;  ///< patches per side that positions are stored for, resized where pictures have others; 0: the same
  double layer_norm_eps = 1e-5;
  Activation activation = Activation::kQuickGelu;

  int64_t patches_per_side() const { return image_size / patch_size; }
  int64_t num_positions() const {
    const int64_t side = stored_side > 0 ? stored_side : patches_per_side();
    return side * side + (has_class_token() ? 1 : 0);
  }

  int64_t last_state() const override { return num_hidden_layers; }
  bool has_class_token() const override { return !siglip && !bigg; }
  int64_t grid_side(int64_t) const override { return patches_per_side(); }
  int64_t width(int64_t) const override { return hidden_size; }
  std::string describe() const override;
  std::vector<std::string> unused_modules(int64_t state) const override;
  bool has_vision_model() const override { return !dinov2; }
  std::unique_ptr<Tower> build(int64_t state) const override;
};

/// CLIPVisionConfig's, SiglipVisionConfig's, Dinov2Config's. Errors: input_error.
std::shared_ptr<const TowerConfig> read_clip(const ConfigReader& config, std::optional<int64_t> side);
std::shared_ptr<const TowerConfig> read_siglip(const ConfigReader& config, std::optional<int64_t> side);
std::shared_ptr<const TowerConfig> read_dinov2(const ConfigReader& config, std::optional<int64_t> side);

}  // namespace vlmtune
