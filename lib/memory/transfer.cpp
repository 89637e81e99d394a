#include "lib/memory/transfer.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <optional>

#include "kernels/copy_across.h"
#include "kernels/device.h"
#include "lib/memory/scope.h"

namespace vlmtune {
namespace {

/// Whether a dry run copies between a host and a device that are one.
bool is_shared(torch::Device device) { return device.is_meta() && kernels::kernel_device(device) == torch::kCPU; }

bool has_memory_of_its_own(torch::Device device) { return !device.is_cpu() && !device.is_meta(); }

/// The stream of all copies. There is one device.
c10::Stream copying_stream(torch::Device device) {
  static const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return stream;
}

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
  if (has_memory_of_its_own(device)) options = options.pinned_memory(true);
  return torch::empty(shape, options);
}

const torch::Tensor& Arriving::for_host() const {
  if (copied_) copied_->synchronize();
  return tensor_;
}

const torch::Tensor& Arriving::for_device() const {
  if (copied_) copied_->block(c10::impl::VirtualGuardImpl(copied_->device_type()).getStream(copied_->device()));
  return tensor_;
}

Arriving send(const torch::Tensor& from, const torch::Tensor& to) {
  Arriving arriving;
  arriving.tensor_ = to;
  const auto& on_device = from.is_cpu() ? to : from;
  const auto device = on_device.device();
  if (!has_memory_of_its_own(device)) {
    kernels::copy_across(to, from);
    return arriving;
  }
  const c10::impl::VirtualGuardImpl implementation(device.type());
  const auto copying = copying_stream(device);
  c10::Event told(device.type());
  told.record(implementation.getStream(device));
  told.block(copying);
  {
    const c10::StreamGuard guard(copying);
    kernels::copy_across(to, from);
  }
  arriving.copied_ = std::make_shared<c10::Event>(device.type());
  arriving.copied_->record(copying);
  return arriving;
}

Arriving stow(const torch::Tensor& x) {
  // A device's allocator may give x's memory to what is computed next once x is let go of: so x stays until the next one leaves,
  // when what is computed next is made to come after its copy.
  static std::pair<torch::Tensor, Arriving> leaving;
  if (leaving.first.defined()) leaving.second.for_device();
  auto arriving = send(x, empty_on_host(x.sizes(), x.scalar_type(), x.device()));
  if (kernels::kernel_device(x.device()) != torch::kCPU) leaving = {x, arriving};
  return arriving;
}

Arriving fetch(const torch::Tensor& stowed, torch::Device device) {
  return send(stowed, torch::empty(stowed.sizes(), stowed.options().device(device).pinned_memory(false)));
}

torch::Tensor to_host(const torch::Tensor& x) {
  if (!x.is_meta()) return x.cpu();
  std::optional<UncountedScope> uncounted;
  if (is_shared(x.device())) uncounted.emplace();
  return torch::zeros(x.sizes(), x.options().device(torch::kCPU));
}

}  // namespace vlmtune
