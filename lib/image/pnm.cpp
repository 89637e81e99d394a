// Binary portable pixmaps: P5 (grey) and P6 (RGB), 8 or 16 bits.
#include "lib/image/codecs.h"

namespace vlmtune::codecs {
namespace {

struct Layout {
  int64_t width = 0, height = 0, max = 0;
  size_t pixels_at = 0;
};

Layout read_layout(Bytes bytes, const std::string& name) {
  Layout layout;
  size_t at = 2;
  for (int64_t* field : {&layout.width, &layout.height, &layout.max}) {
    bool comment = false;
    while (at < bytes.size() && (comment || text(bytes)[at] == '#' || std::isspace(byte_at(bytes, at)))) {
      const char c = text(bytes)[at++];
      comment = c == '#' || (comment && c != '\n' && c != '\r');
    }
    int digits = 0;
    for (; at < bytes.size() && std::isdigit(byte_at(bytes, at)) && digits < 10; ++at, ++digits)
      *field = *field * 10 + (byte_at(bytes, at) - '0');
    if (digits == 0) throw damaged(name, "PNM", "its header is not valid");
  }
  if (at >= bytes.size() || !std::isspace(byte_at(bytes, at)) || layout.max < 1 || layout.max > 65535)
    throw damaged(name, "PNM", "its header is not valid");
  layout.pixels_at = at + 1;
  check_size(layout.width, layout.height, name);
  return layout;
}

}  // namespace

Header read_pnm_header(Bytes bytes, const std::string& name) {
  const Layout layout = read_layout(bytes, name);
  return {{static_cast<int>(layout.width), static_cast<int>(layout.height)}, 1};
}

Image decode_pnm(Bytes bytes, const std::string& name) {
  const Layout layout = read_layout(bytes, name);
  const size_t channels = text(bytes)[1] == '6' ? 3 : 1, depth = layout.max > 255 ? 2 : 1;
  const size_t pixels = static_cast<size_t>(layout.width * layout.height);
  if ((bytes.size() - layout.pixels_at) / (channels * depth) < pixels) throw damaged(name, "PNM", "pixels are missing");
  Image image{static_cast<int>(layout.width), static_cast<int>(layout.height), std::vector<uint8_t>(pixels * 3)};
  const auto max = static_cast<uint32_t>(layout.max);
  for (size_t i = 0; i < pixels * 3; ++i) {
    const size_t at = layout.pixels_at + depth * (channels == 3 ? i : i / 3);
    const uint32_t value = std::min(depth == 2 ? big16(bytes, at) : byte_at(bytes, at), max);
    image.rgb[i] = static_cast<uint8_t>((value * 255 + max / 2) / max);
  }
  return image;
}

}  // namespace vlmtune::codecs
