#include "lib/optim/trained_tensor.h"

#include <cmath>

namespace vlmtune {

double clip_gradients(const std::vector<TrainedTensor>& tensors, double max_norm) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> norms, gradients;
  for (const auto& t : tensors) {
    if (!t.tensor.grad().defined()) continue;
    gradients.push_back(t.tensor.grad());
    norms.push_back(torch::norm(t.tensor.grad().to(torch::kFloat)));
  }
  if (norms.empty()) return 0;
  const double total = torch::norm(torch::stack(norms)).item<double>();
  if (max_norm > 0 && std::isfinite(total)) {
    const double factor = std::min(1.0, max_norm / (total + 1e-6));
    for (auto& gradient : gradients) gradient.mul_(factor);
  }
  return total;
}

std::string first_bad_gradient(const std::vector<TrainedTensor>& tensors) {
  for (const auto& t : tensors)
    if (t.tensor.grad().defined() && !torch::isfinite(t.tensor.grad()).all().item<bool>()) return t.name;
  return {};
}

void zero_gradients(const std::vector<TrainedTensor>& tensors) {
  for (auto t : tensors) t.tensor.mutable_grad().reset();
}

}  // namespace vlmtune
