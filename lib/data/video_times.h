// Videos whose times stand apart in the text, each behind its seconds (Qwen3-VL).
#pragma once
#include <string>
#include <vector>

#include "lib/image/processor.h"
#include "lib/text/prompt.h"

namespace vlmtune {

/// What stands around the slot of a time.
struct TimeBrackets {
  std::string before, after;
};

/// The slot of each video as a slot for each of its times. `videos`: the frames of each, in the order of the slots. A time's
/// seconds are the middle of those of its first and its last frame.
std::vector<PromptSpan> with_slot_per_time(const std::vector<PromptSpan>& spans,
                                           const std::vector<std::vector<std::string>>& videos,
                                           const ImageProcessor& processor, const TimeBrackets& brackets);

}  // namespace vlmtune
