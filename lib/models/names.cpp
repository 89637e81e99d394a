#include "lib/models/names.h"

#include <charconv>
#include <string_view>

namespace vlmtune {
namespace {

struct Rename {
  PartKind kind;
  std::string_view from, to;  // prefixes
};

// Tried in order; each is applied at most once. Spellings: llava-hf before transformers 4.52 (language_model.model.*,
// vision_tower.vision_model.*), 4.52 to 4.57 (model.language_model.*), 5.x, and mixtures of them.
constexpr Rename kRenames[] = {
    {PartKind::kWhole, "model.language_model.lm_head.", "lm_head."},
    {PartKind::kWhole, "language_model.lm_head.", "lm_head."},
    {PartKind::kWhole, "language_model.", "model.language_model."},
    {PartKind::kWhole, "model.language_model.model.", "model.language_model."},
    {PartKind::kWhole, "vision_tower.", "model.vision_tower."},
    {PartKind::kWhole, "model.vision_tower.vision_model.", "model.vision_tower."},
    {PartKind::kWhole, "multi_modal_projector.", "model.multi_modal_projector."},
    {PartKind::kWhole, "image_newline", "model.image_newline"},
    {PartKind::kLanguageModel, "model.", "model.language_model."},
    {PartKind::kVisionTower, "vision_model.", ""},
    // LLaVA's own repository numbers the projector's parts with the activations between them.
    {PartKind::kProjector, "mm_projector.", "model.mm_projector."},
    {PartKind::kProjector, "model.mm_projector.weight", "model.multi_modal_projector.linear_1.weight"},
    {PartKind::kProjector, "model.mm_projector.bias", "model.multi_modal_projector.linear_1.bias"},
    {PartKind::kProjector, "model.mm_projector.0.", "model.multi_modal_projector.linear_1."},
    {PartKind::kProjector, "model.mm_projector.2.", "model.multi_modal_projector.linear_2."},
    {PartKind::kProjector, "model.mm_projector.4.", "model.multi_modal_projector.linear_3."},
    {PartKind::kProjector, "multi_modal_projector.", "model.multi_modal_projector."},
    {PartKind::kProjector, "image_newline", "model.image_newline"},
};

// Text halves of whole CLIP and SigLIP models, which a folder named as vision tower may hold.
constexpr std::string_view kOtherHalf[] = {"text_model.", "visual_projection.", "text_projection.", "logit_scale",
                                           "logit_bias"};

}  // namespace

std::string canonical_tensor_name(const std::string& name, PartKind kind) {
  std::string result = name;
  for (const auto& rename : kRenames)
    if (rename.kind == kind && result.starts_with(rename.from))
      result = std::string(rename.to) + result.substr(rename.from.size());
  if (kind != PartKind::kVisionTower) return result;
  for (const auto prefix : kOtherHalf)
    if (result.starts_with(prefix)) return result;
  return "model.vision_tower." + result;
}

bool is_ignored_tensor(const std::string& name, int64_t num_vision_layers, bool tied_head) {
  if (name.ends_with(".position_ids") || name.ends_with(".inv_freq")) return true;
  if (tied_head && name == "lm_head.weight") return true;
  for (const auto prefix : kOtherHalf)
    if (name.starts_with(prefix)) return true;
  constexpr std::string_view kTower = "model.vision_tower.", kLayers = "encoder.layers.";
  if (!name.starts_with(kTower)) return false;
  const auto rest = std::string_view(name).substr(kTower.size());
  if (rest.starts_with("post_layernorm.") || rest.starts_with("head.")) return true;
  if (!rest.starts_with(kLayers)) return false;
  int64_t layer = -1;
  std::from_chars(rest.data() + kLayers.size(), rest.data() + rest.size(), layer);
  return layer >= num_vision_layers;
}

std::string memory_module(const std::string& canonical) {
  const std::string tower = canonical.find("vision_tower.") != std::string::npos ? "vision_tower." : "";
  if (const auto at = canonical.find(".layers."); at != std::string::npos) {
    const auto number = at + std::string_view(".layers.").size();
    return tower + "layers." + canonical.substr(number, canonical.find('.', number) - number);
  }
  if (!tower.empty()) return tower + "embeddings";
  for (const char* part : {"multi_modal_projector", "image_newline", "embed_tokens", "lm_head", "norm"})
    if (canonical.find(part) != std::string::npos) return part;
  return {};
}

}  // namespace vlmtune
