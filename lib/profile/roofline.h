// How long a step should take on a device: each operator at the rate of its arithmetic or of its memory traffic, whichever
// is slower (Williams et al. 2009, doi 10.1145/1498765.1498785).
#pragma once
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace vlmtune {

/// What a device can do, per second.
struct DeviceRates {
  std::map<std::string, double> flops;  ///< by precision: "bf16" -> 3.12e14
  double bytes = 0;
  double link = 0;        ///< bytes between host and device
  double host_bytes = 0;  ///< of the host's own memory
};

/// Seconds. `compute` and `memory` are the parts where the one or the other is the limit; `recompute`, the part of both that
/// checkpointing does a second time; `transfer`, what crosses the link to the host,
/// which hides behind the rest as far as it can.
struct StepTime {
  double compute = 0, memory = 0, recompute = 0, transfer = 0;
  double link() const { return std::max(0.0, transfer - compute - memory); }
  double total() const { return compute + memory + link(); }
  StepTime operator*(double n) const { return {compute * n, memory * n, recompute * n, transfer * n}; }
  StepTime operator-(const StepTime& o) const {
    return {compute - o.compute, memory - o.memory, recompute - o.recompute, transfer - o.transfer};
  }
  StepTime& operator+=(const StepTime& o) { return *this = *this - o * -1; }
};

/// While it lives, every operator that this thread runs on meta tensors is counted.
class RooflineRecorder {
 public:
  explicit RooflineRecorder(const DeviceRates& rates);
  ~RooflineRecorder();
  RooflineRecorder(const RooflineRecorder&) = delete;
  RooflineRecorder& operator=(const RooflineRecorder&) = delete;

  const StepTime& time() const;
  double flops() const;  ///< of matrix products and attention
  void reset();

  struct State;

 private:
  std::unique_ptr<State> state_;
  uint64_t handle_ = 0;
};

}  // namespace vlmtune
