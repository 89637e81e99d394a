// Configuration of the first Qwen-VL: the first Qwen as language model, a ViT over squares of one size, and a resampler that
// makes the same number of tokens of every picture.
#pragma once
#include "lib/models/vit/config.h"
#include "lib/models/vlm/config.h"

namespace vlmtune {

class ConfigReader;

struct FirstQwenVlVisionConfig : VisionConfig {
  VitConfig vit;
  int64_t num_queries = 256, hidden_size = 0, num_heads = 0;  ///< of the resampler

  int64_t image_tokens(const PictureShape&) const override { return num_queries; }
  std::vector<int64_t> tower_shape(const PictureShape& picture) const override;
  std::string describe_tower() const override;
  ImageProcessor default_processor() const override;
  bool has_own_processor() const override { return true; }
  void adapt(ImageProcessor& processor, const std::string& place) const override;
  BoxStyle box_style() const override { return BoxStyle::kQwenVl; }
  PictureText picture_text() const override { return {"<imgpad>", "<img>", "</img>"}; }
  std::string chat_template() const override { return "qwen_vl"; }
  std::vector<std::string> stop_tokens() const override { return {"<|im_end|>", "<|im_start|>"}; }
  std::vector<std::string> projector_modules() const override { return {"attn_pool"}; }
  std::span<const Rename> published_names() const override { return {}; }
  std::unique_ptr<Vision> build(VlmParts parts) const override;
};

/// A checkpoint of the first Qwen-VL, or of the first Qwen, which has no vision part. Errors: input_error, usage_error.
VlmConfig read_first_qwen_vl(const ConfigReader& config, const VlmChoices& choices);

}  // namespace vlmtune
