// Learning-rate schedules by transformers' formulas, as a factor on the peak rate.
#pragma once
#include <cstdint>

namespace vlmtune {

enum class ScheduleShape { kConstant, kLinear, kCosine };

struct Schedule {
  ScheduleShape shape = ScheduleShape::kCosine;
  int64_t warmup_steps = 0, total_steps = 0;
  double min_ratio = 0;  ///< the factor at the end

  /// The factor of optimizer step `step`, counted from 0: the first step of a warm-up is 0.
  double factor(int64_t step) const;
};

}  // namespace vlmtune
