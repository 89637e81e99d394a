#include "kernels/composed.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;

bool g_composed = false;

}  // namespace

void set_composed(bool composed) { g_composed = composed; }

bool is_composed(const Tensor& x) { return g_composed && x.is_meta(); }

Tensor composed_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const auto wide = x.to(torch::kFloat);
  const auto normal = wide * torch::rsqrt(wide.pow(2).mean(-1, true) + eps);
  return weight.to(x.scalar_type()) * normal.to(x.scalar_type());
}

Tensor composed_rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return x * cos + torch::cat({-halves[1], halves[0]}, -1) * sin;
}

Tensor composed_swiglu(const Tensor& gate, const Tensor& up) {
  if (torch::GradMode::is_enabled()) return torch::silu(gate) * up;
  auto activated = gate;  // Python lets go of the gate as soon as its activation is there
  return torch::silu_(activated) * up;
}

Tensor composed_lora(const Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b, double scale) {
  const auto type = x.scalar_type();  // autocast casts fp32 adapters
  return y + torch::linear(torch::linear(x, a.to(type)), b.to(type)) * scale;
}

Tensor composed_cross_entropy(const Tensor& logits, const Tensor& labels) {
  namespace F = torch::nn::functional;
  const auto next = torch::constant_pad_nd(labels, {0, 1}, -100).narrow(1, 1, labels.size(1)).reshape({-1});
  return F::cross_entropy(logits.to(torch::kFloat).view({-1, logits.size(-1)}), next,
                          F::CrossEntropyFuncOptions().reduction(torch::kSum).ignore_index(-100));
}

void composed_adamw(torch::TensorList parameters, torch::TensorList gradients, torch::TensorList averages,
                    torch::TensorList squares, double rate, const std::array<double, 2>& betas, double decay,
                    double eps, double step) {
  at::_foreach_mul_(parameters, 1 - rate * decay);
  at::_foreach_lerp_(averages, gradients, 1 - betas[0]);
  at::_foreach_mul_(squares, betas[1]);
  at::_foreach_addcmul_(squares, gradients, gradients, 1 - betas[1]);
  auto denominators = at::_foreach_sqrt(squares);
  at::_foreach_div_(denominators, std::sqrt(1 - std::pow(betas[1], step)));
  at::_foreach_add_(denominators, eps);
  at::_foreach_addcdiv_(parameters, averages, denominators, -rate / (1 - std::pow(betas[0], step)));
}

}  // namespace vlmtune::kernels
