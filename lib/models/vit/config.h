// Configuration of the vision transformers found in LLaVA checkpoints: CLIP and SigLIP.
#pragma once
#include <cstdint>
#include <string>

#include "lib/nn/activation.h"

namespace vlmtune {

class ConfigReader;

struct VitConfig {
  bool siglip = false;  ///< no class token and no norm before the blocks; the patch projection has a bias
  int64_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0, num_attention_heads = 0;
  int64_t num_channels = 3, image_size = 0, patch_size = 0;
  double layer_norm_eps = 1e-5;
  Activation activation = Activation::kQuickGelu;

  int64_t patches_per_side() const { return image_size / patch_size; }
  int64_t num_positions() const { return patches_per_side() * patches_per_side() + (siglip ? 0 : 1); }
};

/// Reads a vision config with transformers' defaults; a whole CLIP or SigLIP model's config is looked into.
/// Errors: input_error.
VitConfig read_vit_config(const ConfigReader& config);

}  // namespace vlmtune
