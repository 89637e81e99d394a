#include "kernels/linear_cross_entropy.h"

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                        int64_t chunk, bool need_hidden, bool need_weight, const TiedGradient& tied) {
    const auto used = weight.to(hidden.scalar_type());
    auto total = torch::zeros({}, hidden.options().dtype(torch::kFloat));
    Tensor d_hidden = need_hidden ? torch::empty_like(hidden) : Tensor();
    Tensor d_weight = need_weight ? torch::zeros(weight.sizes(), weight.options().dtype(torch::kFloat)) : Tensor();
    for (int64_t begin = 0; begin < hidden.size(0); begin += chunk) {
      const int64_t count = std::min(chunk, hidden.size(0) - begin);
      const auto h = hidden.narrow(0, begin, count);  // [t, D]
      auto logits = linear_product(h, used);          // [t, V]
      total +=
          cross_entropy_(logits, targets.narrow(0, begin, count), need_hidden || need_weight);  // now their gradient
      if (need_hidden) d_hidden.narrow(0, begin, count).copy_(linear_product(logits, used.t()));
      if (need_weight) d_weight += linear_product(logits.t(), h.t()).to(torch::kFloat);
    }
    context->save_for_backward({d_hidden, need_weight ? d_weight.to(weight.scalar_type()) : Tensor()});
    if (tied) context->saved_data["tied"] = c10::IValue::make_capsule(tied);
    return total;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto scaled = [&](const Tensor& t) { return t.defined() ? t * gradients[0].to(t.scalar_type()) : Tensor(); };
    auto d_weight = scaled(saved[1]);
    if (const auto tied = context->saved_data["tied"]; !tied.isNone() && d_weight.defined())
      c10::static_intrusive_pointer_cast<TiedGradientSlot>(tied.toCapsule())->gradient =
          std::exchange(d_weight, Tensor());
    return {scaled(saved[0]), d_weight, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets, int64_t chunk,
                            const TiedGradient& tied) {
  if (hidden.size(0) == 0) return hidden.sum().to(torch::kFloat);  // no supervised token: zero, still part of the graph
  // Asked here, since a function that is not recorded knows nothing of its inputs' needs.
  const bool recorded = torch::GradMode::is_enabled();
  return LinearCrossEntropyFunction::apply(hidden, weight, targets, chunk > 0 ? chunk : hidden.size(0),
                                           recorded && hidden.requires_grad(), recorded && weight.requires_grad(),
                                           tied);
}

}  // namespace vlmtune::kernels
