#include "kernels/lora_linear.h"

#include "kernels/composed.h"
#include "kernels/device.h"
#include "kernels/linear.h"
#include "kernels/tensors.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor as_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// y += scale * x weightᵀ. The CPU's libraries accumulate with work space that no plan can foresee, and in fp32 with
/// results that depend on where tensors lie: there, the product is made first.
void add_product(Tensor& y, const Tensor& x, const Tensor& weight, double scale) {
  if (y.numel() == 0) return;
  if (kernel_device(y) == torch::kCPU)
    y.add_(linear_product(x, weight), scale);
  else
    y.view({-1, y.size(-1)}).addmm_(as_rows(x), weight.t(), 1, scale);
}

Tensor base_product(const Tensor& x, const BaseWeight& weight, const Tensor& bias) {
  return weight.quantized ? quantized_product(x, *weight.quantized, bias) : linear_product(x, weight.whole, bias);
}

Tensor base_input_gradient(const Tensor& dy, const BaseWeight& weight) {
  return weight.quantized ? quantized_input_gradient(dy, *weight.quantized) : linear_product(dy, weight.whole.t());
}

struct LoraLinearFunction : torch::autograd::Function<LoraLinearFunction> {
  // Gradients are asked for by place among the tensors that are there: those that may be missing stand last.
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& a, const Tensor& b,
                        const BaseWeight& weight, double scale, const std::optional<Tensor>& dropped,
                        const std::optional<Tensor>& bias) {
    const auto type = x.scalar_type();
    const auto& input = dropped ? *dropped : x;
    const auto low = linear_product(input, a.to(type));         // [..., r]
    auto y = base_product(x, weight, bias.value_or(Tensor()));  // [..., out]
    add_product(y, low, b.to(type), scale);
    context->save_for_backward({input, low, weight.whole, a, b});
    context->saved_data["quantized"] = capsule_of(weight.quantized);
    context->saved_data["dropped"] = dropped.has_value();
    context->saved_data["scale"] = scale;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &low = saved[1], &a = saved[3], &b = saved[4];
    const BaseWeight weight{saved[2], quantized_in(context->saved_data["quantized"])};
    const auto type = input.scalar_type();
    const double scale = context->saved_data["scale"].toDouble();
    const bool dropped = context->saved_data["dropped"].toBool();
    const auto& dy = gradients[0];
    const auto rows = as_rows(dy);
    Tensor dx, d_dropped, da, db;
    if (context->needs_input_grad(2)) db = linear_product(rows.t(), as_rows(low).t()).to(b.scalar_type()).mul_(scale);
    const auto d_low = linear_product(dy, b.to(type).t()).mul_(scale);  // [..., r]
    if (context->needs_input_grad(1)) da = linear_product(as_rows(d_low).t(), as_rows(input).t()).to(a.scalar_type());
    if (context->needs_input_grad(0)) dx = base_input_gradient(dy, weight);
    if (dropped) {
      if (context->needs_input_grad(3)) d_dropped = linear_product(d_low, a.to(type).t());
    } else if (dx.defined()) {
      add_product(dx, d_low, a.to(type).t(), 1);
    }
    return {dx, da, db, Tensor(), Tensor(), d_dropped, Tensor()};
  }
};

}  // namespace

Tensor base_linear(const Tensor& x, const BaseWeight& weight, const Tensor& bias) {
  return weight.quantized ? quantized_linear(x, weight.quantized, bias) : kernels::linear(x, weight.whole, bias);
}

Tensor lora_linear(const Tensor& x, const Tensor& dropped, const BaseWeight& weight, const Tensor& bias,
                   const Tensor& a, const Tensor& b, double scale) {
  if (is_composed(x)) {
    return composed_lora(base_linear(x, weight, bias), dropped.defined() ? dropped : x, a, b, scale);
  }
  if (torch::GradMode::is_enabled())
    return LoraLinearFunction::apply(x, a, b, weight, scale, optional_tensor(dropped), optional_tensor(bias));
  const auto type = x.scalar_type();
  const auto low = kernels::linear(dropped.defined() ? dropped : x, a.to(type), {});
  return base_linear(x, weight, bias).add_(kernels::linear(low, b.to(type), {}), scale);
}

}  // namespace vlmtune::kernels
