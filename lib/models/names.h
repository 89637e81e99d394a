// Tensor names: every spelling found in checkpoints and adapters becomes the one that transformers 5 has in memory.
#pragma once
#include <string>
#include <string_view>

namespace vlmtune {

/// What a checkpoint folder holds.
enum class PartKind {
  kWhole,          ///< a model that takes pictures
  kBare,           ///< a language model that stays bare
  kLanguageModel,  ///< the language model of a model put together from parts
  kVisionTower,    ///< its tower
  kProjector,      ///< a file with the projector alone
};

/// Another beginning of a name.
struct Rename {
  std::string_view from, to;
};

/// "language_model.model.norm.weight" -> "model.language_model.norm.weight".
std::string canonical_tensor_name(const std::string& name, PartKind kind);

/// Parts of a model as people speak of them.
enum class Component { kVisionTower, kProjector, kLanguageModel };
/// Of a tensor or module by its canonical name.
Component component_of(const std::string& canonical);
/// "vision_tower", "multi_modal_projector", "language_model", whatever the family calls them.
std::string_view component_name(Component component);

/// The part of the model that a tensor or layer belongs to in accounts of memory: "layers.3", "vision_tower.layers.0",
/// "embed_tokens", "multi_modal_projector". A stage of several blocks counts as one layer.
std::string memory_module(const std::string& canonical);

/// A tensor of a low-rank update.
bool is_lora(const std::string& canonical);

/// Tensors that checkpoints of any family hold and no model uses: buffers, text halves of CLIP and SigLIP, heads of classifiers.
bool is_ignored_tensor(const std::string& canonical);

}  // namespace vlmtune
