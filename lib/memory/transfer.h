// Between the host, where data-dependent sizes are decided, and the device that computes.
#pragma once
#include <torch/torch.h>

#include <memory>

namespace c10 {
struct Event;
}

namespace vlmtune {

/// A host tensor on `device`. In a dry run that stands for the CPU, where the tensor would stay where it is, the copy
/// counts only when it takes the place of a temporary one.
torch::Tensor to_device(const torch::Tensor& host, torch::Device device);
torch::Tensor to_device(torch::Tensor&& host, torch::Device device);

/// A tensor for values that the host keeps for a device: pinned, so that copies need not be waited for. In a dry run a meta
/// tensor that counts as the host's.
torch::Tensor empty_on_host(torch::IntArrayRef shape, torch::ScalarType type, torch::Device device);

/// A tensor that a copy between host and device is on its way to. Such copies go on beside what the device computes: they come
/// after all that it was told to do before, and one after another.
class Arriving {
 public:
  /// The host waits.
  const torch::Tensor& for_host() const;
  /// What the device is told from here on comes after the copy.
  const torch::Tensor& for_device() const;
  /// To be copied back some time, which comes after.
  const torch::Tensor& for_later() const { return tensor_; }

 private:
  friend Arriving send(const torch::Tensor& from, const torch::Tensor& to);
  torch::Tensor tensor_;
  std::shared_ptr<c10::Event> copied_;  ///< none where the copy is made at once
};

/// to = from, one of them on the host, of one shape. Both stay as they are until somebody waited.
Arriving send(const torch::Tensor& from, const torch::Tensor& to);

/// A copy that the host keeps, and a copy of that on the device. x itself stays in memory until the next tensor is stowed.
Arriving stow(const torch::Tensor& x);
Arriving fetch(const torch::Tensor& stowed, torch::Device device);

/// A device tensor's values on the host. A dry run has none and gets zeros.
torch::Tensor to_host(const torch::Tensor& x);

}  // namespace vlmtune
