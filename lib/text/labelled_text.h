// Text on its way through the tokenizer, with a label for each byte that says where the byte came from.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

/// Bits of a label.
inline constexpr uint8_t kAnswerByte = 1;     ///< came from an answer
inline constexpr uint8_t kControlByte = 2;    ///< written by the template
inline constexpr uint8_t kEndOfTurnByte = 4;  ///< first byte of what follows an answer in the template's text

struct LabelledText {
  std::string text;
  std::vector<uint8_t> labels;  ///< one per byte, or empty when nobody asks

  bool labelled() const { return !labels.empty(); }
  uint8_t label_at(size_t position) const { return position < labels.size() ? labels[position] : 0; }
  void append(std::string_view bytes, uint8_t label, bool with_labels) {
    text += bytes;
    if (with_labels) labels.insert(labels.end(), bytes.size(), label);
  }
};

}  // namespace vlmtune
