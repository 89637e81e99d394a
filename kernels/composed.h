// What transformers, PEFT and torch.optim compose from several operations where this program has one kernel: a dry run with
// --peer transformers takes these, to say what those would need.
#pragma once
#include <torch/torch.h>

#include <array>

namespace vlmtune::kernels {

/// Makes dry runs from now on take the composed operations, or no longer.
void set_composed(bool composed);

/// Whether this tensor's operations are composed.
bool is_composed(const torch::Tensor& x);

// The formulas of transformers' modeling_llama.py and PEFT's tuners/lora/layer.py; arguments as in the kernel of that name.
torch::Tensor composed_rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);
torch::Tensor composed_rope(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin);
torch::Tensor composed_swiglu(const torch::Tensor& gate, const torch::Tensor& up);
/// `y` is the base layer's output.
torch::Tensor composed_lora(const torch::Tensor& y, const torch::Tensor& x, const torch::Tensor& a,
                            const torch::Tensor& b, double scale);
/// Sum over the labelled tokens of the cross entropy (loss/loss_utils.py): logits [B, T, V] of every position, made fp32;
/// labels [B, T] with -100 for none, position t predicting label t + 1.
torch::Tensor composed_cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels);

/// One step of torch.optim.AdamW with foreach, whose denominators of all tensors are alive together.
void composed_adamw(torch::TensorList parameters, torch::TensorList gradients, torch::TensorList averages,
                    torch::TensorList squares, double rate, const std::array<double, 2>& betas, double decay,
                    double eps, double step);

}  // namespace vlmtune::kernels
