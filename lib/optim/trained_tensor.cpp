#include "lib/optim/trained_tensor.h"

#include <cmath>

#include "lib/memory/scope.h"

namespace vlmtune {

void move_gradient_to_host(const TrainedTensor& trained) {
  const torch::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::kGradients);
  const ModuleScope module(trained.module);
  auto tensor = trained.tensor;
  auto arriving = stow(tensor.grad());
  tensor.mutable_grad().reset();
  const HostScope host;
  if (const auto sum = trained.gradient(); sum.defined())
    sum.add_(arriving.for_host());
  else
    *trained.host_gradient = std::move(arriving);
}

double clip_gradients(const std::vector<TrainedTensor>& tensors, double max_norm) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> norms, gradients;
  for (const auto& t : tensors) {
    const auto gradient = t.gradient();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient);
    norms.push_back(torch::norm(gradient.to(torch::kFloat)));
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
    if (const auto g = t.gradient(); g.defined() && !torch::isfinite(g).all().item<bool>()) return t.name;
  return {};
}

void zero_gradients(const std::vector<TrainedTensor>& tensors) {
  for (auto t : tensors) {
    t.tensor.mutable_grad().reset();
    if (t.host_gradient) t.host_gradient->reset();
  }
}

}  // namespace vlmtune
