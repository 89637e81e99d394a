// Activation checkpointing (Chen et al. 2016, arXiv 1604.06174): keep a block's input, run the block again in backward.
#pragma once
#include "lib/nn/types.h"

namespace vlmtune {

/// block(x), without keeping what the block computes inside. Parameters that the block uses get their gradients when
/// the second run is differentiated. Random numbers (dropout) are the same in both runs. x must require a gradient when
/// any parameter inside does, since the engine only comes by where a gradient flows; see `require_input_grad`.
Tensor recompute(const std::function<Tensor(const Tensor&)>& block, const Tensor& x);

/// Whether this thread is in the second run of a block.
bool recomputing();

/// x itself when it already requires a gradient, else a view of it that does.
Tensor require_input_grad(const Tensor& x);

}  // namespace vlmtune
