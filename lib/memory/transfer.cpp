#include "lib/memory/transfer.h"

#include <optional>

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

torch::Tensor to_device(torch::Tensor&& host, torch::Device device) { return host.to(device); }

torch::Tensor to_host(const torch::Tensor& x) {
  if (!x.is_meta()) return x.cpu();
  std::optional<UncountedScope> uncounted;
  if (is_shared(x.device())) uncounted.emplace();
  return torch::zeros(x.sizes(), x.options().device(torch::kCPU));
}

}  // namespace vlmtune
