#include "lib/models/names.h"

namespace vlmtune {
namespace {

struct Spelling {
  PartKind kind;
  std::string_view from, to;  // prefixes
};

// Tried in order; each is applied at most once. Spellings: llava-hf before transformers 4.52 (language_model.model.*,
// vision_tower.vision_model.*), Qwen-VL's of that time (model.*, visual.*), 4.52 to 4.57 (model.language_model.*), 5.x, and
// mixtures of them.
constexpr Spelling kSpellings[] = {
    {PartKind::kWhole, "model.language_model.lm_head.", "lm_head."},
    {PartKind::kWhole, "language_model.lm_head.", "lm_head."},
    {PartKind::kWhole, "language_model.", "model.language_model."},
    {PartKind::kWhole, "model.language_model.model.", "model.language_model."},
    {PartKind::kWhole, "vision_tower.", "model.vision_tower."},
    {PartKind::kWhole, "model.vision_tower.vision_tower.", "model.vision_tower."},
    {PartKind::kWhole, "model.vision_tower.vision_model.", "model.vision_tower."},
    {PartKind::kWhole, "multi_modal_projector.", "model.multi_modal_projector."},
    {PartKind::kWhole, "image_newline", "model.image_newline"},
    {PartKind::kWhole, "visual.", "model.visual."},
    {PartKind::kWhole, "model.embed_tokens.", "model.language_model.embed_tokens."},
    {PartKind::kWhole, "model.layers.", "model.language_model.layers."},
    {PartKind::kWhole, "model.norm.", "model.language_model.norm."},
    {PartKind::kLanguageModel, "model.", "model.language_model."},
    {PartKind::kVisionTower, "vision_model.", ""},
    {PartKind::kVisionTower, "convnextv2.", ""},
    {PartKind::kProjector, "mm_projector.", "model.mm_projector."},
    {PartKind::kProjector, "multi_modal_projector.", "model.multi_modal_projector."},
    {PartKind::kProjector, "image_newline", "model.image_newline"},
    {PartKind::kProjector, "visual.", "model.visual."},
    {PartKind::kProjector, "similarity_head.", "model.similarity_head."},
};

// LLaVA's own repository numbers the projector's parts with the activations between them.
constexpr Rename kOriginalProjector[] = {
    {"model.mm_projector.weight", "model.multi_modal_projector.linear_1.weight"},
    {"model.mm_projector.bias", "model.multi_modal_projector.linear_1.bias"},
    {"model.mm_projector.0.", "model.multi_modal_projector.linear_1."},
    {"model.mm_projector.2.", "model.multi_modal_projector.linear_2."},
    {"model.mm_projector.4.", "model.multi_modal_projector.linear_3."},
};

// The first that a name holds says whose it is.
constexpr std::pair<std::string_view, Component> kComponents[] = {
    {"multi_modal_projector", Component::kProjector},
    {"image_newline", Component::kProjector},
    {"similarity_head", Component::kProjector},
    {"visual.merger", Component::kProjector},
    {"visual.deepstack_merger_list", Component::kProjector},
    {"visual.attn_pool", Component::kProjector},
    {"vision_tower.", Component::kVisionTower},
    {"visual.", Component::kVisionTower},
};

// Text halves of whole CLIP and SigLIP models and heads of classifiers, which a folder named as vision tower may hold.
constexpr std::string_view kBesideTower[] = {"text_model.", "visual_projection.", "text_projection.",
                                             "logit_scale", "logit_bias",         "classifier."};

}  // namespace

std::string canonical_tensor_name(const std::string& name, PartKind kind) {
  std::string result = name;
  for (const auto& spelling : kSpellings)
    if (spelling.kind == kind && result.starts_with(spelling.from))
      result = std::string(spelling.to) + result.substr(spelling.from.size());
  for (const auto& [from, to] : kOriginalProjector)
    if (result.starts_with(from)) return std::string(to) + result.substr(from.size());
  if (kind != PartKind::kVisionTower) return result;
  for (const auto prefix : kBesideTower)
    if (result.starts_with(prefix)) return result;
  return "model.vision_tower." + result;
}

Component component_of(const std::string& name) {
  for (const auto& [part, component] : kComponents)
    if (name.find(part) != std::string::npos) return component;
  return Component::kLanguageModel;
}

std::string_view component_name(Component component) {
  return component == Component::kVisionTower ? "vision_tower"
         : component == Component::kProjector ? "multi_modal_projector"
                                              : "language_model";
}

bool is_lora(const std::string& canonical) { return canonical.find(".lora_") != std::string::npos; }

bool is_ignored_tensor(const std::string& name) {
  for (const char* ending : {".position_ids", ".inv_freq", ".masked_bias", ".mask_token"})
    if (name.ends_with(ending)) return true;
  for (const auto prefix : kBesideTower)
    if (name.starts_with(prefix)) return true;
  return false;
}

std::string memory_module(const std::string& canonical) {
  const auto component = component_of(canonical);
  if (canonical.ends_with("image_newline")) return "image_newline";
  if (component == Component::kProjector) return "multi_modal_projector";
  const std::string tower = component == Component::kVisionTower ? "vision_tower." : "";
  for (const std::string_view blocks : {".stages.", ".layers.", ".blocks.", ".resblocks.", ".h."})
    if (const auto at = canonical.find(blocks); at != std::string::npos) {
      const auto number = at + blocks.size();
      return tower + "layers." + canonical.substr(number, canonical.find('.', number) - number);
    }
  if (!tower.empty()) return tower + "embeddings";
  for (const auto& [part, module] : {std::pair("embed_tokens", "embed_tokens"),
                                     {"wte", "embed_tokens"},
                                     {"lm_head", "lm_head"},
                                     {"norm", "norm"},
                                     {"ln_f", "norm"}})
    if (canonical.find(part) != std::string::npos) return module;
  return {};
}

}  // namespace vlmtune
