#include "lib/nn/activation.h"

#include "lib/base/errors.h"

namespace vlmtune {

Activation parse_activation(const std::string& name, const std::string& place) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") return Activation::kGeluTanh;
  if (name == "quick_gelu") return Activation::kQuickGelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "relu") return Activation::kRelu;
  throw input_error("{}: activation \"{}\" is not supported; known are gelu, gelu_pytorch_tanh, quick_gelu, silu, relu",
                    place, name);
}

Tensor activate(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::kGelu:
      return torch::gelu(x);
    case Activation::kGeluTanh:
      return torch::gelu(x, "tanh");
    case Activation::kQuickGelu:
      return x * torch::sigmoid(x * 1.702);
    case Activation::kSilu:
      return torch::silu(x);
    case Activation::kRelu:
      return torch::relu(x);
  }
  throw InternalError("unknown activation");
}

}  // namespace vlmtune
