// Tensor shapes are written with these letters throughout: B batch, T tokens, D hidden size, H attention heads,
// K key-value heads, d head size, F feed-forward size, V vocabulary, N image tiles, P patches, C channels.
#pragma once
#include <torch/torch.h>

#include <functional>
#include <string>

namespace vlmtune {

using torch::Tensor;
struct Linear;

/// How a module shows its tensors: full name ("model.norm.weight") and the slot that holds the tensor.
using TensorVisitor = std::function<void(const std::string& name, Tensor& tensor)>;
/// How a module shows its linear layers, by module name as PEFT sees it ("model.layers.0.self_attn.q_proj").
using LinearVisitor = std::function<void(const std::string& name, Linear& linear)>;

}  // namespace vlmtune
