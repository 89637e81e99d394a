// Activation checkpointing (Chen et al. 2016, arXiv 1604.06174): keep a block's input, run the block again in backward.
#pragma once
#include "lib/nn/types.h"

namespace vlmtune {

/// Which parts of a stack of blocks are run again in backward: nothing, whole blocks (one in `every`), or each block's MLP,
/// which keeps most of what a block keeps and costs about half of it to run again.
struct RecomputePolicy {
  enum class Part { kNothing, kBlock, kMlp };
  Part part = Part::kNothing;
  int64_t every = 1;

  RecomputePolicy() = default;
  RecomputePolicy(bool blocks) : part(blocks ? Part::kBlock : Part::kNothing) {}
  /// From "none", "full", "selective" (the MLPs) or "every:N".
  static RecomputePolicy parse(const std::string& text);
  bool anything() const { return part != Part::kNothing; }
  bool block(size_t index) const { return part == Part::kBlock && static_cast<int64_t>(index) % every == 0; }
  bool mlp() const { return part == Part::kMlp; }
};

/// block(x), without keeping what the block computes inside. Parameters that the block uses get their gradients when
/// the second run is differentiated. Random numbers (dropout) are the same in both runs. x must require a gradient when
/// any parameter inside does, since the engine only comes by where a gradient flows; see `require_input_grad`.
Tensor recompute(const std::function<Tensor(const Tensor&)>& block, const Tensor& x);

/// Whether this thread is in the second run of a block.
bool recomputing();

/// x itself when it already requires a gradient, else a view of it that does.
Tensor require_input_grad(const Tensor& x);

}  // namespace vlmtune
