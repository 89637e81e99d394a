#include "lib/image/boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace vlmtune {
namespace {

constexpr double kThousand = 1000;

/// A position is (pixel + offset) * scale, for x and y.
struct Axes {
  std::array<double, 2> offset{}, scale{};
};

Axes axes_of(const BoxFrame& frame) {
  const auto& [width, height] = frame.original;
  switch (frame.style) {
    case BoxStyle::kLlava: {
      const int side = std::max(width, height);  // as pad_to_square centres it
      return {{static_cast<double>((side - width) / 2), static_cast<double>((side - height) / 2)},
              {1.0 / side, 1.0 / side}};
    }
    case BoxStyle::kQwen25Vl:
      return {{},
              {static_cast<double>(frame.resized.width) / width, static_cast<double>(frame.resized.height) / height}};
    default:
      return {{}, {kThousand / width, kThousand / height}};
  }
}

Box to_model(const Box& box, const BoxFrame& frame) {
  const auto axes = axes_of(frame);
  Box out;
  for (size_t i = 0; i < box.size(); ++i) out[i] = (box[i] + axes.offset[i % 2]) * axes.scale[i % 2];
  return out;
}

Box to_pixels(const Box& box, const BoxFrame& frame) {
  const auto axes = axes_of(frame);
  Box out;
  for (size_t i = 0; i < box.size(); ++i) {
    const double edge = i % 2 == 0 ? frame.original.width : frame.original.height;
    out[i] = std::clamp(box[i] / axes.scale[i % 2] - axes.offset[i % 2], 0.0, edge);
  }
  return out;
}

std::string in_corners(const Box& b) {
  return fmt::format("({:.0f},{:.0f}),({:.0f},{:.0f})", std::round(b[0]), std::round(b[1]), std::round(b[2]),
                     std::round(b[3]));
}

std::string in_brackets(const Box& b) {
  return fmt::format("[{:.0f}, {:.0f}, {:.0f}, {:.0f}]", std::round(b[0]), std::round(b[1]), std::round(b[2]),
                     std::round(b[3]));
}

bool has_corners(BoxStyle style) { return style == BoxStyle::kQwenVl || style == BoxStyle::kQwen2Vl; }

std::string number_of(BoxStyle style) {
  return style == BoxStyle::kLlava ? R"(([01]?\.\d+|[01](?!\d)))" : R"((\d{1,5}))";
}

/// Four numbers as groups 1 to 4.
std::regex box_pattern(BoxStyle style) {
  const auto n = number_of(style);
  return std::regex(has_corners(style) ? fmt::format(R"(\({0},\s*{0}\)\s*,\s*\({0},\s*{0}\))", n)
                                       : fmt::format(R"(\[\s*{0},\s*{0},\s*{0},\s*{0}\s*\])", n));
}

template <typename Match>
Box numbers_of(const Match& match) {
  Box box;
  for (size_t i = 0; i < box.size(); ++i) box[i] = std::stod(match[i + 1].str());
  return box;
}

/// The name that ends right before a box: in marks, or what Qwen's JSON calls the label, which follows the box.
std::string name_beside(const std::string& before, const std::string& behind) {
  static const std::regex marked(
      R"((?:<ref>|<\|object_ref_start\|>)([^<]*)(?:</ref>|<\|object_ref_end\|>)\s*(?:<box>|<\|box_start\|>)?$)");
  static const std::regex label(R"(^\s*,\s*"label"\s*:\s*"([^"]*)\")");
  std::smatch match;
  if (std::regex_search(before, match, marked) || std::regex_search(behind, match, label)) return match[1].str();
  return {};
}

}  // namespace

std::string write_box(const Box& box, const BoxFrame& frame) {
  const auto b = to_model(box, frame);
  switch (frame.style) {
    case BoxStyle::kLlava:
      return fmt::format("[{:.3f}, {:.3f}, {:.3f}, {:.3f}]", b[0], b[1], b[2], b[3]);
    case BoxStyle::kQwenVl:
      return fmt::format("<box>{}</box>", in_corners(b));
    case BoxStyle::kQwen2Vl:
      return fmt::format("<|box_start|>{}<|box_end|>", in_corners(b));
    default:
      return in_brackets(b);
  }
}

std::string write_reference(std::string_view name, BoxStyle style) {
  if (style == BoxStyle::kQwenVl) return fmt::format("<ref>{}</ref>", name);
  if (style == BoxStyle::kQwen2Vl) return fmt::format("<|object_ref_start|>{}<|object_ref_end|>", name);
  return std::string(name);
}

std::vector<FoundObject> find_boxes(std::string_view text, const BoxFrame& frame) {
  const std::string all(text);
  const auto pattern = box_pattern(frame.style);
  std::vector<FoundObject> found;
  for (std::sregex_iterator match(all.begin(), all.end(), pattern), end; match != end; ++match) {
    constexpr size_t kNear = 200;  // bytes in which a name is looked for
    const auto begin = static_cast<size_t>(match->position()), behind = begin + static_cast<size_t>(match->length());
    const auto from = begin - std::min(begin, kNear);
    found.push_back(
        {name_beside(all.substr(from, begin - from), all.substr(behind, kNear)), to_pixels(numbers_of(*match), frame)});
  }
  return found;
}

std::string convert_qwen_boxes(std::string_view text, const BoxFrame& frame) {
  static const std::regex pattern(R"(<box>\((\d+),\s*(\d+)\),\s*\((\d+),\s*(\d+)\)</box>|<ref>([^<]*)</ref>)");
  if (frame.style == BoxStyle::kQwenVl) return std::string(text);
  const BoxFrame thousandths{BoxStyle::kQwenVl, frame.original, {}};
  const std::string all(text);
  std::string out;
  auto copied = all.begin();
  for (std::sregex_iterator match(all.begin(), all.end(), pattern), end; match != end; ++match) {
    out.append(copied, (*match)[0].first);
    copied = (*match)[0].second;
    out += (*match)[5].matched ? write_reference((*match)[5].str(), frame.style)
                               : write_box(to_pixels(numbers_of(*match), thousandths), frame);
  }
  out.append(copied, all.end());
  return out;
}

}  // namespace vlmtune
