// What every update rule shares: the trained tensors, their state by name, and its way into a checkpoint and back.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/optim/trained_tensor.h"

namespace vlmtune {

class Optimizer {
 public:
  /// With `on_host` state is kept and tensors are updated in the host's memory, from fp32 copies ("master") of them (ZeRO-Offload,
  /// Ren et al. 2021, arXiv 2101.06840).
  explicit Optimizer(std::vector<TrainedTensor> tensors, bool on_host = false);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update with each tensor's learning rate times `rate_factor`. Tensors without a gradient stay as they are. A bf16
  /// tensor is updated in fp32 and rounded stochastically, by random numbers of `seed`.
  virtual void step(double rate_factor, uint64_t seed = 0);
  /// The same for one tensor.
  void step_one(size_t index, double rate_factor, uint64_t seed = 0);

  const std::vector<TrainedTensor>& tensors() const { return tensors_; }

  /// "<tensor>.<part>" for every part of every tensor's state. Tensors that were never updated have none.
  std::map<std::string, torch::Tensor> state() const;
  /// Puts a saved state back. Errors: input_error that names a part that is missing, of another shape or of no tensor.
  void load_state(const std::map<std::string, torch::Tensor>& state);

 protected:
  /// The parts of one tensor's state by name.
  using State = std::map<std::string, torch::Tensor>;
  /// The state before the first update.
  virtual State fresh_state(const torch::Tensor& tensor) const = 0;
  /// fp32, or as the tensor in a dry run of composed operations.
  static torch::Tensor zeros_for(const torch::Tensor& tensor);
  /// Updates a fp32 tensor from its gradient, which has its type, and the state.
  virtual void update(const TrainedTensor& trained, const torch::Tensor& gradient, State& state, double rate) = 0;

 private:
  State fresh_host_state(const torch::Tensor& tensor) const;
  std::vector<TrainedTensor> tensors_;
  std::vector<State> states_;
  bool on_host_;
};

}  // namespace vlmtune
