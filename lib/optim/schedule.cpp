#include "lib/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vlmtune {

double Schedule::factor(int64_t step) const {
  if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup_steps));
  if (shape == ScheduleShape::kConstant) return 1;
  const double rest = static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  const double progress = static_cast<double>(step - warmup_steps) / rest;
  const double fall =
      shape == ScheduleShape::kLinear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return min_ratio + (1 - min_ratio) * std::max(0.0, fall);
}

}  // namespace vlmtune
