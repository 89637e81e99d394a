// Configuration of ConvNeXt-V2 as a vision tower.
#pragma once
#include "lib/models/tower.h"
#include "lib/nn/activation.h"

namespace vlmtune {

/// State i is what leaves stage i, whose grid has half the side of the one before it (rounded down).
struct ConvNextConfig : TowerConfig {
  std::vector<int64_t> hidden_sizes, depths;  ///< of each stage: channels and blocks
  int64_t num_channels = 3, patch_size = 4;
  Activation activation = Activation::kGelu;

  int64_t last_state() const override { return static_cast<int64_t>(depths.size()); }
  int64_t usual_state() const override { return -1; }  // earlier grids are finer by far
  bool has_class_token() const override { return false; }
  bool takes_any_size() const override { return true; }
  int64_t grid_side(int64_t state) const override;
  int64_t width(int64_t state) const override;
  std::string describe() const override;
  std::vector<std::string> unused_modules(int64_t state) const override;
  std::unique_ptr<Tower> build(int64_t state) const override;
};

/// ConvNextV2Config's. Errors: input_error.
std::shared_ptr<const TowerConfig> read_convnext(const ConfigReader& config, std::optional<int64_t> side);

}  // namespace vlmtune
