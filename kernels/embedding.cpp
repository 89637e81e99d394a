#include "kernels/embedding.h"

#include "kernels/composed.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct TiedEmbeddingFunction : torch::autograd::Function<TiedEmbeddingFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& ids, const TiedGradient& tied) {
    context->save_for_backward({ids});
    context->saved_data["rows"] = weight.size(0);
    context->saved_data["tied"] = c10::IValue::make_capsule(tied);
    return torch::embedding(weight, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto ids = context->get_saved_variables()[0];
    const auto tied = c10::static_intrusive_pointer_cast<TiedGradientSlot>(context->saved_data["tied"].toCapsule());
    const auto& dy = gradients[0];
    auto gradient = std::exchange(tied->gradient, Tensor());
    if (!gradient.defined())  // nothing supervised: the head had no part
      gradient = torch::zeros({context->saved_data["rows"].toInt(), dy.size(-1)}, dy.options());
    gradient.index_add_(0, ids.flatten(), dy.reshape({-1, dy.size(-1)}));
    return {gradient, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& ids, const TiedGradient& tied) {
  const bool trains = torch::GradMode::is_enabled() && weight.requires_grad();
  return tied && trains && !is_composed(weight) ? TiedEmbeddingFunction::apply(weight, ids, tied)
                                                : torch::embedding(weight, ids);
}

}  // namespace vlmtune::kernels
