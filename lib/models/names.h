// Tensor names: every spelling found in checkpoints and adapters becomes the one that transformers 5 has in memory.
#pragma once
#include <string>

namespace vlmtune {

/// What a checkpoint folder holds.
enum class PartKind {
  kWhole,          ///< a LLaVA model, or a bare language model that stays bare
  kLanguageModel,  ///< the language model of a model put together from parts
  kVisionTower,    ///< its tower
  kProjector,      ///< a file with the projector alone
};

/// "language_model.model.norm.weight" -> "model.language_model.norm.weight".
std::string canonical_tensor_name(const std::string& name, PartKind kind);

/// The part of the model that a tensor or layer belongs to in accounts of memory: "layers.3", "vision_tower.layers.0",
/// "embed_tokens", "multi_modal_projector".
std::string memory_module(const std::string& canonical);

/// Tensors that checkpoints hold and the model does not use: buffers, towers' unused heads, layers behind the selected one.
bool is_ignored_tensor(const std::string& canonical, int64_t num_vision_layers, bool tied_head);

}  // namespace vlmtune
