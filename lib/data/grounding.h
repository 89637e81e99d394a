// Rows whose texts speak of boxes: placeholders and Qwen-VL's marks become what the model writes.
#pragma once
#include <functional>
#include <vector>

#include "lib/data/dataset.h"

namespace vlmtune {

/// `messages` with each <ref-object> and <bbox> replaced by the row's next name and box, and Qwen-VL's boxes, which belong to
/// the picture before them, converted. `frame_of` is asked for the pictures that have boxes.
std::vector<Message> place_boxes(const Row& row, std::vector<Message> messages,
                                 const std::function<BoxFrame(size_t image)>& frame_of);

/// Whether a text has a <ref-object> or <bbox>.
bool has_placeholders(const std::vector<Message>& messages);

/// Whether place_boxes would change anything.
bool speaks_of_boxes(const Row& row, const std::vector<Message>& messages);

}  // namespace vlmtune
