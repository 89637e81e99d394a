#include "lib/memory/transfer.h"

#include <optional>

#include "kernels/copy_across.h"
#include "kernels/device.h"
#include "lib/memory/scope.h"

namespace vlmtune {
namespace {

/// Whether a dry run copies between a host and a device that are one.
bool is_shared(torch::Device device) { return device.is_meta() && kernels::kernel_device(device) == torch::kCPU; }

}  // namespace

torch::Tensor to_device(const torch::Tensor& host, torch::Device device) {
  if (host.device() == device) return host;
  std::optional<UncountedScope> uncounted;
  if (is_shared(device)) uncounted.emplace();
  return host.to(device);
}

torch::Tensor to_device(torch::Tensor&& host, torch::Device device) {
  const torch::Tensor taken = std::move(host);  // the caller's variable lets go of it
  return taken.to(device);
}

torch::Tensor empty_on_host(torch::IntArrayRef shape, torch::ScalarType type, torch::Device device) {
  const HostScope host;
  auto options = torch::TensorOptions(device.is_meta() ? torch::kMeta : torch::kCPU).dtype(type);
  if (device.is_cuda()) options = options.pinned_memory(true);
  return torch::empty(shape, options);
}

torch::Tensor stow(const torch::Tensor& x) {
  auto copy = empty_on_host(x.sizes(), x.scalar_type(), x.device());
  kernels::copy_across(copy, x);
  return copy;
}

torch::Tensor fetch(const torch::Tensor& stowed, torch::Device device) {
  auto copy = torch::empty(stowed.sizes(), stowed.options().device(device).pinned_memory(false));
  kernels::copy_across(copy, stowed);
  return copy;
}

torch::Tensor to_host(const torch::Tensor& x) {
  if (!x.is_meta()) return x.cpu();
  std::optional<UncountedScope> uncounted;
  if (is_shared(x.device())) uncounted.emplace();
  return torch::zeros(x.sizes(), x.options().device(torch::kCPU));
}

}  // namespace vlmtune
