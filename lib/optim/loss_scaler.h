// Dynamic loss scaling for fp16 (Micikevicius et al. 2017, arXiv 1710.03740), with torch.amp.GradScaler's defaults.
#pragma once
#include <cstdint>

namespace vlmtune {

class LossScaler {
 public:
  /// A constant `scale`, or one that doubles after 2000 good steps and halves after a bad one.
  LossScaler(double scale, bool dynamic) : scale_(scale), dynamic_(dynamic) {}
  static LossScaler none() { return {1, false}; }
  static LossScaler automatic() { return {65536, true}; }

  double scale() const { return scale_; }
  int64_t good_steps() const { return good_steps_; }
  /// Called after each step with whether its gradients were finite.
  void update(bool finite);
  void restore(double scale, int64_t good_steps) {
    scale_ = scale;
    good_steps_ = good_steps;
  }

 private:
  double scale_;
  bool dynamic_;
  int64_t good_steps_ = 0;
};

}  // namespace vlmtune
