// Activation functions by the names that Hugging Face configs use.
#pragma once
#include <string>

#include "lib/nn/types.h"

namespace vlmtune {

enum class Activation { kGelu, kGeluTanh, kQuickGelu, kSilu, kRelu };

/// "gelu", "gelu_pytorch_tanh", "quick_gelu", "silu"... Errors: input_error that names `place`.
Activation parse_activation(const std::string& name, const std::string& place);
Tensor activate(Activation activation, const Tensor& x);

}  // namespace vlmtune
