// GIF by stb_image, first frame. stb takes missing bytes for zeros, so the blocks are walked first.
#include <climits>
#include <memory>

#include "lib/image/codecs.h"

#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_GIF
#define STBI_NO_STDIO
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

namespace vlmtune::codecs {
namespace {

/// Whether the file holds everything up to the end of its first frame.
bool holds_first_frame(Bytes bytes) {
  const auto colours = [](uint8_t flags) { return flags & 0x80 ? size_t{3} << ((flags & 7) + 1) : 0; };
  size_t at = 13 + colours(byte_at(bytes, 10));
  const auto skip_blocks = [&] {
    while (at < bytes.size() && byte_at(bytes, at) != 0) at += size_t{1} + byte_at(bytes, at);
    return at++ < bytes.size();
  };
  while (at < bytes.size()) {
    const uint8_t tag = byte_at(bytes, at++);
    if (tag == 0x21) {
      ++at;
      if (!skip_blocks()) return false;
    } else if (tag == 0x2C) {
      if (at + 9 > bytes.size()) return false;
      at += 9 + colours(byte_at(bytes, at + 8)) + 1;
      return skip_blocks();
    } else {
      return false;
    }
  }
  return false;
}

}  // namespace

Header read_gif_header(Bytes bytes, const std::string& name) {
  if (bytes.size() < 13) throw damaged(name, "GIF", "it ends before its header does");
  const uint32_t width = little16(bytes, 6), height = little16(bytes, 8);
  check_size(width, height, name);
  return {{static_cast<int>(width), static_cast<int>(height)}, 1};
}

Image decode_gif(Bytes bytes, const std::string& name) {
  const ImageSize size = read_gif_header(bytes, name).size;
  if (!holds_first_frame(bytes)) throw damaged(name, "GIF", "it ends before its first frame does");
  if (bytes.size() > INT_MAX) throw damaged(name, "GIF", "it is larger than 2 GB");
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()), &width,
                            &height, &channels, 4),
      stbi_image_free);
  if (!pixels) throw damaged(name, "GIF", stbi_failure_reason());
  if (width != size.width || height != size.height) throw damaged(name, "GIF", "its sizes disagree");
  return composite_on_white(pixels.get(), width, height);
}

}  // namespace vlmtune::codecs
