#include "lib/image/image.h"

#include <array>
#include <atomic>

#include "lib/image/codecs.h"
#include "lib/image/counters.h"

namespace vlmtune {
namespace {

using codecs::Bytes;
using codecs::Header;

std::atomic<int64_t> g_decoded{0}, g_processed{0};

/// One readable format: how it begins and who reads it.
struct Format {
  std::string_view magic;
  size_t at;
  Header (*header)(Bytes, const std::string&);
  Image (*decode)(Bytes, const std::string&);
};

constexpr std::string_view kSupported = "JPEG, PNG, WebP, GIF, BMP and binary PNM";

constexpr Format kFormats[] = {
    {"\xFF\xD8\xFF", 0, codecs::read_jpeg_header, codecs::decode_jpeg},
    {"\x89PNG\r\n\x1A\n", 0, codecs::read_png_header, codecs::decode_png},
    {"WEBP", 8, codecs::read_webp_header, codecs::decode_webp},
    {"GIF87a", 0, codecs::read_gif_header, codecs::decode_gif},
    {"GIF89a", 0, codecs::read_gif_header, codecs::decode_gif},
    {"BM", 0, codecs::read_bmp_header, codecs::decode_bmp},
    {"P5", 0, codecs::read_pnm_header, codecs::decode_pnm},
    {"P6", 0, codecs::read_pnm_header, codecs::decode_pnm},
};

/// Containers that people hand over by mistake, named so that they know what to convert.
struct Container {
  std::string_view magic;
  size_t at;
  std::string_view name;
};

constexpr Container kOthers[] = {
    {std::string_view("II*\0", 4), 0, "a TIFF picture"},
    {std::string_view("MM\0*", 4), 0, "a TIFF picture"},
    {std::string_view("II+\0", 4), 0, "a BigTIFF picture"},
    {"ftypavif", 4, "an AVIF picture"},
    {"ftypavis", 4, "an AVIF picture"},
    {"ftyphei", 4, "a HEIC picture"},
    {"ftypmif1", 4, "a HEIF picture"},
    {"ftyp", 4, "an MP4 or QuickTime file"},
    {std::string_view("\0\0\0\x0CJXL ", 8), 0, "a JPEG XL picture"},
    {"\xFF\x0A", 0, "a JPEG XL picture"},
    {std::string_view("\0\0\0\x0CjP  ", 8), 0, "a JPEG 2000 picture"},
    {"\xFF\x4F\xFF\x51", 0, "a JPEG 2000 picture"},
    {std::string_view("\0\0\1\0", 4), 0, "an icon file"},
    {"8BPS", 0, "a Photoshop file"},
    {"%PDF", 0, "a PDF file"},
    {"qoif", 0, "a QOI picture"},
    {"P1", 0, "a plain-text PNM picture"},
    {"P2", 0, "a plain-text PNM picture"},
    {"P3", 0, "a plain-text PNM picture"},
    {"P4", 0, "a bilevel PNM picture"},
    {"PK\x03\x04", 0, "a ZIP archive"},
    {"\x1F\x8B", 0, "a gzip file"},
    {"version https://git-lfs", 0, "a Git LFS pointer (the picture itself was not fetched)"},
};

bool begins(std::string_view content, std::string_view magic, size_t at) {
  return content.size() >= at + magic.size() && content.substr(at, magic.size()) == magic;
}

/// The text formats, after white space and whatever their case.
std::string_view text_container(std::string_view content) {
  const size_t start = content.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (start == std::string_view::npos) return {};
  std::string head(content.substr(start, 512));
  for (char& c : head) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (head.starts_with("<!doctype html") || head.starts_with("<html")) return "an HTML page";
  if (head.starts_with("<svg") || (head.starts_with("<?xml") && head.find("<svg") != std::string::npos))
    return "an SVG drawing";
  return {};
}

const Format& find_format(Bytes bytes, const std::string& name) {
  const std::string_view content = codecs::text(bytes);
  if (content.empty()) throw input_error("{}: the picture file is empty", name);
  for (const Format& format : kFormats)
    if (begins(content, format.magic, format.at) && (format.at == 0 || content.starts_with("RIFF"))) return format;
  std::string_view found = text_container(content);
  for (const Container& other : kOthers)
    if (found.empty() && begins(content, other.magic, other.at)) found = other.name;
  throw input_error("{}: this is {}, not a picture that can be read; supported are {}", name,
                    found.empty() ? "an unknown kind of file" : found, kSupported);
}

ImageSize oriented(const Header& header) {
  return header.orientation >= 5 ? ImageSize{header.size.height, header.size.width} : header.size;
}

/// Turns a picture as EXIF says: 2 mirrored, 3 by 180, 4 flipped, 5 transposed, 6 by 90 clockwise, 7 transversed, 8 by 270.
Image orient(Image in, int orientation) {
  if (orientation <= 1) return in;
  const bool swapped = orientation >= 5;
  const size_t width = static_cast<size_t>(in.width), height = static_cast<size_t>(in.height);
  Image out{swapped ? in.height : in.width, swapped ? in.width : in.height, std::vector<uint8_t>(in.rgb.size())};
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  uint8_t* target = out.rgb.data();
  for (size_t y = 0; y < static_cast<size_t>(out.height); ++y) {
    for (size_t x = 0; x < static_cast<size_t>(out.width); ++x, target += 3) {
      size_t from_x = swapped ? y : x, from_y = swapped ? x : y;
      if (flip_x) from_x = width - 1 - from_x;
      if (flip_y) from_y = height - 1 - from_y;
      const uint8_t* pixel = in.rgb.data() + 3 * (from_y * width + from_x);
      std::copy(pixel, pixel + 3, target);
    }
  }
  return out;
}

}  // namespace

namespace codecs {

void check_size(int64_t width, int64_t height, const std::string& name) {
  if (width < 1 || height < 1) throw input_error("{}: the picture declares a size of {} x {}", name, width, height);
  if (width > kMaxImagePixels || height > kMaxImagePixels || width * height > kMaxImagePixels)
    throw input_error("{}: the picture declares {} x {} pixels, more than the limit of {}", name, width, height,
                      kMaxImagePixels);
}

UserError damaged(const std::string& name, std::string_view format, std::string_view reason) {
  return input_error("{}: the {} picture is damaged or truncated ({})", name, format, reason);
}

Image composite_on_white(const uint8_t* rgba, int width, int height) {
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
  Image image{width, height, std::vector<uint8_t>(3 * pixels)};
  for (size_t i = 0; i < pixels; ++i) {
    const int alpha = rgba[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int sum = 255 * (255 - alpha) + rgba[4 * i + c] * alpha + 128;
      image.rgb[3 * i + c] = static_cast<uint8_t>(((sum >> 8) + sum) >> 8);
    }
  }
  return image;
}

}  // namespace codecs

void count_processed_image() { g_processed.fetch_add(1, std::memory_order_relaxed); }

ImageCounters image_counters() { return {g_decoded.load(), g_processed.load()}; }

ImageSize probe_image(std::span<const std::byte> bytes, const std::string& name) {
  return oriented(find_format(bytes, name).header(bytes, name));
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name) {
  const Format& format = find_format(bytes, name);
  const Header header = format.header(bytes, name);
  Image image = format.decode(bytes, name);
  VLMTUNE_CHECK(image.size() == header.size, "{}: header and pixels disagree on the size", name);
  g_decoded.fetch_add(1, std::memory_order_relaxed);
  return orient(std::move(image), header.orientation);
}

}  // namespace vlmtune
