// Boxes around objects of a picture: rows and users have them in pixels of the original picture, each model family writes
// them its own way.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lib/image/image.h"

namespace vlmtune {

/// How a family writes a box.
enum class BoxStyle {
  kLlava,     // [0.123, 0.456, 0.789, 0.999] of the picture padded to a square (LLaVA-1.5)
  kQwenVl,    // <ref>cat</ref>, <box>(123,456),(789,999)</box>: thousandths of the picture
  kQwen2Vl,   // the same with <|object_ref_start|>, <|box_start|> and so on
  kQwen25Vl,  // [123, 456, 789, 999] in pixels of the picture as the tower gets it
  kQwen3Vl,   // [123, 456, 789, 999] in thousandths of the picture
};

/// Left, top, right and bottom edge in pixels of the original picture.
using Box = std::array<double, 4>;

/// What positions in a picture are counted in.
struct BoxFrame {
  BoxStyle style = BoxStyle::kLlava;
  ImageSize original;
  ImageSize resized;  // what the tower gets; kQwen25Vl alone
};

/// The box as the model writes it.
std::string write_box(const Box& box, const BoxFrame& frame);

/// The name of what is in a box, as the model writes it in front.
std::string write_reference(std::string_view name, BoxStyle style);

struct FoundObject {
  std::string name;  // empty: none is given
  Box box;
};

/// The boxes in a model's text, in order; the inverse of write_box, also where marks around boxes were left out. A name is
/// that of a <ref> just in front, or the "label" of Qwen's JSON.
std::vector<FoundObject> find_boxes(std::string_view text, const BoxFrame& frame);

/// `text`, whose boxes are Qwen-VL's (<ref>cat</ref><box>(123,456),(789,999)</box>), as the model writes them. Other text
/// stays.
std::string convert_qwen_boxes(std::string_view text, const BoxFrame& frame);

}  // namespace vlmtune
