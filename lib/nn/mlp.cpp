#include "lib/nn/mlp.h"

#include "kernels/swiglu.h"

namespace vlmtune {

GatedMlp::GatedMlp(int64_t hidden, int64_t intermediate, bool bias, Activation act)
    : gate_proj(hidden, intermediate, bias),
      up_proj(hidden, intermediate, bias),
      down_proj(intermediate, hidden, bias),
      activation(act) {}

Tensor GatedMlp::forward(const Tensor& x, bool training) const {
  const auto product = [&] {                           // gate and up are gone before the last product makes its output
    const auto gate = gate_proj.forward(x, training);  // [B, T, F]
    const auto up = up_proj.forward(x, training);      // [B, T, F]
    return activation == Activation::kSilu ? kernels::swiglu(gate, up) : activate(activation, gate) * up;
  }();
  return down_proj.forward(product, training);
}

void GatedMlp::visit_linears(const std::string& name, const LinearVisitor& visitor, const GatedMlpNames& names) {
  visitor(name + "." + names.gate, gate_proj);
  visitor(name + "." + names.up, up_proj);
  visitor(name + "." + names.down, down_proj);
}

Mlp::Mlp(int64_t hidden, int64_t intermediate, Activation act)
    : fc1(hidden, intermediate, true), fc2(intermediate, hidden, true), activation(act) {}

Tensor Mlp::forward(const Tensor& x, bool training) const {
  return fc2.forward(activate(activation, fc1.forward(x, training)), training);
}

void Mlp::visit_linears(const std::string& name, const LinearVisitor& visitor) {
  visitor(name + ".fc1", fc1);
  visitor(name + ".fc2", fc2);
}

}  // namespace vlmtune
