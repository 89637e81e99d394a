// BMP: OS/2 and Windows headers, 1/2/4/8-bit palettes, RLE4 and RLE8, 16/24/32 bits with or without masks, top-down.
#include <array>
#include <bit>

#include "lib/image/codecs.h"

namespace vlmtune::codecs {
namespace {

enum Compression : uint32_t { kRgb = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

struct Layout {
  int width = 0, height = 0;
  bool top_down = false;
  uint32_t bits = 0, compression = kRgb;
  std::array<uint32_t, 4> masks{};  // red, green, blue, alpha
  size_t pixels_at = 0, palette_at = 0, palette_entry = 4, palette_size = 0;
};

std::array<uint32_t, 4> default_masks(uint32_t bits) {
  return bits == 16 ? std::array<uint32_t, 4>{0x7C00, 0x03E0, 0x001F, 0}
                    : std::array<uint32_t, 4>{0xFF0000, 0x00FF00, 0x0000FF, 0};
}

Layout read_layout(Bytes bytes, const std::string& name) {
  if (bytes.size() < 26) throw damaged(name, "BMP", "it ends before its header does");
  const size_t header_size = little32(bytes, 14);
  const bool os2 = header_size == 12;
  if (!os2 && (header_size < 40 || header_size > 256)) throw damaged(name, "BMP", "its header is of an unknown kind");
  if (bytes.size() < 14 + header_size) throw damaged(name, "BMP", "it ends before its header does");
  Layout layout;
  layout.pixels_at = little32(bytes, 10);
  layout.bits = little16(bytes, os2 ? 24 : 28);
  const int64_t width = os2 ? int64_t{little16(bytes, 18)} : static_cast<int32_t>(little32(bytes, 18));
  int64_t height = os2 ? int64_t{little16(bytes, 20)} : static_cast<int32_t>(little32(bytes, 22));
  layout.top_down = height < 0;
  height = std::abs(height);
  check_size(width, height, name);
  layout.width = static_cast<int>(width);
  layout.height = static_cast<int>(height);
  if (!os2) layout.compression = little32(bytes, 30);
  layout.palette_at = 14 + header_size;
  layout.palette_entry = os2 ? 3 : 4;
  if (layout.compression == kBitFields) {
    if (header_size == 40) layout.palette_at += 12;
    if (bytes.size() < layout.palette_at) throw damaged(name, "BMP", "it ends before its masks do");
    for (size_t i = 0; i < (header_size >= 56 ? 4 : 3); ++i) layout.masks[i] = little32(bytes, 54 + 4 * i);
  } else {
    layout.masks = default_masks(layout.bits);
  }
  if (layout.bits <= 8) {
    const size_t declared = os2 ? 0 : little32(bytes, 46);
    layout.palette_size = declared == 0 ? size_t{1} << layout.bits : std::min<size_t>(declared, 256);
    if (layout.palette_at + layout.palette_size * layout.palette_entry > bytes.size())
      throw damaged(name, "BMP", "it ends before its palette does");
  }
  return layout;
}

/// Expands run-length coded rows to one palette index per byte, [H, W], first row of the file first.
std::vector<uint8_t> expand_runs(Bytes bytes, const Layout& layout, const std::string& name) {
  const bool nibbles = layout.compression == kRle4;
  const auto width = static_cast<size_t>(layout.width), height = static_cast<size_t>(layout.height);
  std::vector<uint8_t> indices(width * height);
  size_t x = 0, y = 0, at = layout.pixels_at;
  const auto next = [&] {
    if (at >= bytes.size()) throw damaged(name, "BMP", "its runs end too early");
    return byte_at(bytes, at++);
  };
  const auto put = [&](uint8_t index) {
    if (x < width && y < height) indices[y * width + x] = index;
    ++x;
  };
  while (y < height) {
    const int count = next(), value = next();
    if (count > 0) {
      for (int i = 0; i < count; ++i)
        put(static_cast<uint8_t>(!nibbles ? value : i % 2 == 0 ? value >> 4 : value & 15));
    } else if (value == 0) {  // end of line
      x = 0;
      ++y;
    } else if (value == 1) {  // end of picture
      break;
    } else if (value == 2) {  // jump
      x += next();
      y += next();
    } else {  // literal run, padded to 16 bits
      const int size = nibbles ? (value + 1) / 2 : value;
      for (int i = 0; i < size; ++i) {
        const int byte = next();
        if (!nibbles) {
          put(static_cast<uint8_t>(byte));
          continue;
        }
        put(static_cast<uint8_t>(byte >> 4));
        if (2 * i + 1 < value) put(static_cast<uint8_t>(byte & 15));
      }
      if (size % 2 != 0) next();
    }
  }
  return indices;
}

/// The bits of `value` under `mask`, scaled to 0..255.
uint8_t masked(uint32_t value, uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  return static_cast<uint8_t>(uint64_t{(value & mask) >> shift} * 255 / (mask >> shift));
}

/// Writes the RGBA of one file row.
void read_row(Bytes row, const Layout& layout, Bytes palette, uint8_t* out) {
  for (int x = 0; x < layout.width; ++x, out += 4) {
    const auto i = static_cast<size_t>(x);
    out[3] = 255;
    if (layout.bits <= 8) {
      const size_t bit = i * layout.bits;
      const size_t index = byte_at(row, bit / 8) >> (8 - layout.bits - bit % 8) & ((1u << layout.bits) - 1);
      for (size_t c = 0; c < 3; ++c)
        out[c] = index < layout.palette_size ? byte_at(palette, index * layout.palette_entry + 2 - c) : 0;
    } else if (layout.bits == 24) {
      for (size_t c = 0; c < 3; ++c) out[c] = byte_at(row, 3 * i + 2 - c);
    } else {
      const uint32_t value = layout.bits == 16 ? little16(row, 2 * i) : little32(row, 4 * i);
      for (size_t c = 0; c < 3; ++c) out[c] = masked(value, layout.masks[c]);
      if (layout.masks[3] != 0) out[3] = masked(value, layout.masks[3]);
    }
  }
}

}  // namespace

Header read_bmp_header(Bytes bytes, const std::string& name) {
  const Layout layout = read_layout(bytes, name);
  return {{layout.width, layout.height}, 1};
}

Image decode_bmp(Bytes bytes, const std::string& name) {
  Layout layout = read_layout(bytes, name);
  const bool runs =
      (layout.compression == kRle8 && layout.bits == 8) || (layout.compression == kRle4 && layout.bits == 4);
  const bool masks = layout.compression == kBitFields && (layout.bits == 16 || layout.bits == 32);
  const uint32_t b = layout.bits;
  if ((layout.compression != kRgb && !runs && !masks) ||
      (b != 1 && b != 2 && b != 4 && b != 8 && b != 16 && b != 24 && b != 32))
    throw input_error("{}: BMP with {} bits and compression {} is not supported", name, b, layout.compression);
  std::vector<uint8_t> indices;
  const Bytes palette = layout.bits <= 8 ? bytes.subspan(layout.palette_at) : Bytes{};
  Bytes pixels;
  if (runs) {
    indices = expand_runs(bytes, layout, name);
    pixels = std::as_bytes(std::span(indices));
    layout.bits = 8;
  } else {
    if (layout.pixels_at > bytes.size()) throw damaged(name, "BMP", "it ends before its pixels");
    pixels = bytes.subspan(layout.pixels_at);
  }
  const auto width = static_cast<size_t>(layout.width), height = static_cast<size_t>(layout.height);
  const size_t row_bytes = (width * layout.bits + 7) / 8;
  const size_t stride = runs ? width : (row_bytes + 3) / 4 * 4;
  if (pixels.size() < stride * (height - 1) + row_bytes) throw damaged(name, "BMP", "pixels are missing");
  std::vector<uint8_t> rgba(4 * width * height);
  for (size_t y = 0; y < height; ++y)
    read_row(pixels.subspan(stride * y, row_bytes), layout, palette,
             rgba.data() + 4 * width * (layout.top_down ? y : height - 1 - y));
  return composite_on_white(rgba.data(), layout.width, layout.height);
}

}  // namespace vlmtune::codecs
