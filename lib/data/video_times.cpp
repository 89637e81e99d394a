#include "lib/data/video_times.h"

#include <algorithm>

#include "lib/base/errors.h"

namespace vlmtune {

std::vector<PromptSpan> with_slot_per_time(const std::vector<PromptSpan>& spans,
                                           const std::vector<std::vector<std::string>>& videos,
                                           const ImageProcessor& processor, const TimeBrackets& brackets) {
  std::vector<PromptSpan> result;
  const auto write = [&](const std::string& text) {
    if (!result.empty() && result.back().kind == SpanKind::kControl)
      result.back().text += text;
    else
      result.push_back({SpanKind::kControl, text});
  };
  const auto of_time = static_cast<size_t>(processor.frames_per_patch);
  const auto second_of = [&](size_t frame) { return static_cast<double>(frame) / processor.frames_per_second; };
  size_t video = 0;
  for (const auto& span : spans) {
    if (span.kind == SpanKind::kControl) write(span.text);
    if (span.kind == SpanKind::kVideo) {
      const size_t frames = videos.at(video++).size();
      for (size_t first = 0; first < frames; first += of_time) {
        const size_t last = std::min(first + of_time, frames) - 1;
        write(fmt::format("<{:.1f} seconds>{}", (second_of(first) + second_of(last)) / 2, brackets.before));
        result.push_back(span);
        write(brackets.after);
      }
    }
    if (span.kind != SpanKind::kControl && span.kind != SpanKind::kVideo) result.push_back(span);
  }
  return result;
}

}  // namespace vlmtune
