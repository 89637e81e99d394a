// Activation checkpointing (Chen et al. 2016, arXiv 1604.06174): keep a block's input, run the block again in backward.
#pragma once
#include <limits>

#include "lib/nn/types.h"

namespace vlmtune {

/// Which parts of a stack of blocks are run again in backward: whole blocks, or in each block its MLP, which keeps most of
/// what a block keeps and costs about half of it to run again, or its attention.
struct RecomputePolicy {
  enum class Part { kNothing, kBlock, kMlp, kAttention };
  Part part = Part::kNothing;
  int64_t count = std::numeric_limits<int64_t>::max(), every = 1;  ///< of the first `count` blocks, one in `every`
  bool inputs_on_host = false;  ///< what is kept for the second run waits in the host's memory

  RecomputePolicy() = default;
  RecomputePolicy(bool blocks) : part(blocks ? Part::kBlock : Part::kNothing) {}
  /// From "none", "full", "selective" (the MLPs), "selective:mlp", "selective:attention", "every:N" or "first:N" (Megatron's "block" method).
  static RecomputePolicy parse(const std::string& text);
  bool anything() const { return part != Part::kNothing; }
  bool covers(Part which, int64_t block) const { return which == part && block < count && block % every == 0; }
  /// f(x), where f is a part of a block: run again in backward if the policy says so.
  Tensor run(Part which, int64_t block, const std::function<Tensor(const Tensor&)>& f, const Tensor& x) const;
};

/// block(x), without keeping what the block computes inside. Parameters that the block uses get their gradients when
/// the second run is differentiated. Random numbers (dropout) are the same in both runs. x must require a gradient when
/// any parameter inside does, since the engine only comes by where a gradient flows; see `require_input_grad`.
Tensor recompute(const std::function<Tensor(const Tensor&)>& block, const Tensor& x, bool input_on_host = false);

/// Whether this thread is in the second run of a block.
bool recomputing();

/// x itself when it already requires a gradient, else a view of it that does.
Tensor require_input_grad(const Tensor& x);

}  // namespace vlmtune
