#include "lib/data/grounding.h"

#include <algorithm>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

constexpr std::string_view kName = "<ref-object>", kBox = "<bbox>", kQwenBox = "<box>(";

bool mentions(const std::vector<Message>& messages, std::initializer_list<std::string_view> marks) {
  for (const Message& message : messages)
    for (const MessagePart& part : message.parts)
      for (const auto mark : marks)
        if (part.text.find(mark) != std::string::npos) return true;
  return false;
}

/// Replaces placeholders from left to right.
class Placeholders {
 public:
  Placeholders(const Row& row, const std::function<BoxFrame(size_t)>& frame_of) : row_(row), frame_of_(frame_of) {}

  std::string fill(std::string_view text) {
    std::string out;
    while (!text.empty()) {
      const size_t name = next_placeholder(text), box = row_.boxes.empty() ? std::string_view::npos : text.find(kBox);
      const size_t at = std::min(name, box);
      out += text.substr(0, at);
      if (at == std::string_view::npos) break;
      out += at == box ? next_box() : next_name();
      text.remove_prefix(at + (at == box ? kBox : kName).size());
    }
    return out;
  }

  void check_all_used() const {
    if (boxes_ != row_.boxes.size() || names_ != row_.object_names.size())
      throw input_error("{} <bbox> and {} <ref-object> stand in the texts for {} boxes and {} names", boxes_, names_,
                        row_.boxes.size(), row_.object_names.size());
  }

 private:
  size_t next_placeholder(std::string_view text) const {
    return row_.object_names.empty() ? std::string_view::npos : text.find(kName);
  }
  std::string next_box() {
    if (boxes_++ >= row_.boxes.size()) return {};  // check_all_used complains
    const auto& [box, image] = row_.boxes[boxes_ - 1];
    if (image >= row_.images.size())
      throw input_error("a box belongs to picture {}, the row has {}", image, row_.images.size());
    return write_box(box, frame_of_(image));
  }
  std::string next_name() {
    if (names_++ >= row_.object_names.size()) return {};
    const size_t image = row_.boxes.empty() ? 0 : row_.boxes[std::min(boxes_, row_.boxes.size() - 1)].image;
    return write_reference(row_.object_names[names_ - 1], frame_of_(image).style);
  }

  const Row& row_;
  const std::function<BoxFrame(size_t)>& frame_of_;
  size_t names_ = 0, boxes_ = 0;
};

}  // namespace

std::vector<Message> place_boxes(const Row& row, std::vector<Message> messages,
                                 const std::function<BoxFrame(size_t)>& frame_of) {
  if (row.images.empty()) throw input_error("the row has objects and no picture");
  Placeholders placeholders(row, frame_of);
  size_t pictures = 0;  // so far
  for (Message& message : messages) {
    for (MessagePart& part : message.parts) {
      if (part.kind == MessagePart::Kind::kImage) ++pictures;
      if (part.kind != MessagePart::Kind::kText || message.role == "system") continue;
      if (part.text.find(kQwenBox) != std::string::npos)
        part.text = convert_qwen_boxes(part.text, frame_of(std::max<size_t>(1, pictures) - 1));
      part.text = placeholders.fill(part.text);
    }
  }
  // A prompt is a row without its last answer.
  if (messages.size() == row.messages.size()) placeholders.check_all_used();
  return messages;
}

bool has_placeholders(const std::vector<Message>& messages) { return mentions(messages, {kName, kBox}); }

bool speaks_of_boxes(const Row& row, const std::vector<Message>& messages) {
  if (!row.boxes.empty() || !row.object_names.empty()) return true;
  return !row.images.empty() && mentions(messages, {kQwenBox});
}

}  // namespace vlmtune
