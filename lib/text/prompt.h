// A prompt in pieces that remember who wrote them: the chat template makes them, the tokenizer encodes them.
#pragma once
#include <cstdint>
#include <string>

namespace vlmtune {

/// The id that stands for one image in an encoded prompt (LLaVA's IMAGE_TOKEN_INDEX).
inline constexpr int64_t kImageSlot = -200;
/// The same for a video.
inline constexpr int64_t kVideoSlot = -201;

enum class SpanKind {
  kControl,  ///< written by the template: added tokens in it are parsed
  kText,     ///< user or system text: control tokens typed here stay text, but marks of boxes
  kAnswer,   ///< assistant text: trained, and control tokens as above
  kImage,    ///< one image slot; the text is empty
  kVideo,    ///< one video slot; the text is empty
};

struct PromptSpan {
  SpanKind kind = SpanKind::kControl;
  std::string text;
  int turn = -1;  ///< index of the message the text came from; -1 for control text

  bool operator==(const PromptSpan&) const = default;
};

}  // namespace vlmtune
