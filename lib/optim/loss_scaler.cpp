#include "lib/optim/loss_scaler.h"

namespace vlmtune {

void LossScaler::update(bool finite) {
  constexpr int64_t kGrowthInterval = 2000;
  if (!dynamic_) return;
  if (!finite) {
    scale_ *= 0.5;
    good_steps_ = 0;
  } else if (++good_steps_ == kGrowthInterval) {
    scale_ *= 2;
    good_steps_ = 0;
  }
}

}  // namespace vlmtune
