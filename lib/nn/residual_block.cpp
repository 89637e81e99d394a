#include "lib/nn/residual_block.h"

#include "lib/base/errors.h"
#include "lib/memory/scope.h"

namespace vlmtune {

Tensor run_block(const BlockStack& stack, size_t number, const Tensor& x,
                 const std::function<Tensor(const Tensor&)>& attention,
                 const std::function<Tensor(const Tensor&)>& mlp) {
  using Part = RecomputePolicy::Part;
  const auto index = static_cast<int64_t>(number);
  const auto name = fmt::format("{}layers.{}", stack.prefix, index);
  const auto named = [&](const std::function<Tensor(const Tensor&)>& part) {
    return [part, name](const Tensor& in) {
      const ModuleScope module(name);
      return part(in);
    };
  };
  const auto block = [attention = named(attention), mlp = named(mlp), index, policy = stack.policy,
                      name](const Tensor& in) {
    const ModuleScope module(name);
    const auto h = in + policy.run(Part::kAttention, index, attention, in);
    return h + policy.run(Part::kMlp, index, mlp, h);
  };
  // The view makes the gradients of a state that is also a feature add up in the same order with and without recomputing.
  return streamed(stack.stream, number, x,
                  [&](const Tensor& in) { return stack.policy.run(Part::kBlock, index, block, in.view_as(in)); });
}

}  // namespace vlmtune
