// How a stack of pre-norm blocks is run: the same for language models and towers.
#pragma once
#include "lib/nn/recompute.h"
#include "lib/nn/weight_stream.h"

namespace vlmtune {

struct BlockStack {
  RecomputePolicy policy;          ///< what is run again in backward
  WeightStream* stream = nullptr;  ///< of the blocks' weights, if they are not kept
  std::string prefix;              ///< of the blocks' names in accounts of memory: "", "vision_tower."
};

/// Block `index` of the stack: h = x + attention(x), h + mlp(h). The functions are kept for backward.
Tensor run_block(const BlockStack& stack, size_t index, const Tensor& x,
                 const std::function<Tensor(const Tensor&)>& attention,
                 const std::function<Tensor(const Tensor&)>& mlp);

}  // namespace vlmtune
