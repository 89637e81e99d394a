// Pictures as bytes in, 8-bit RGB out: what Pillow gives for exif_transpose(image) pasted on white.
// The format is found by content, never by the file's extension.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vlmtune {

/// A size in pixels. Note the order: width first (transformers' image_sizes are height first).
struct ImageSize {
  int width = 0, height = 0;
  bool operator==(const ImageSize&) const = default;
};

/// An 8-bit RGB picture.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [H, W, 3]
  ImageSize size() const { return {width, height}; }
};

/// Pictures that declare more pixels than this are refused before anything is allocated (Pillow's limit).
inline constexpr int64_t kMaxImagePixels = 178'956'970;

/// The size after EXIF orientation, from the header alone. `name` is what errors call the picture.
/// Errors: input_error for what decode_image would refuse by its header.
ImageSize probe_image(std::span<const std::byte> bytes, const std::string& name);

/// Decodes JPEG (grey, YCbCr, RGB, CMYK, YCCK), PNG (all depths, palette, tRNS, Adam7), WebP, GIF, BMP and PNM (P5, P6).
///  - EXIF orientation is applied (a broken EXIF block counts as none);
///  - alpha of every kind is composited on white;
///  - 16 bits become 8 by their high byte; palettes, grey and bilevel become RGB;
///  - the first frame of animations and multi-picture files is taken.
/// Errors: input_error naming the picture for other containers (the detected one is named), more than kMaxImagePixels
/// declared, truncated or damaged data.
Image decode_image(std::span<const std::byte> bytes, const std::string& name);

/// Work done by this process so far: every picture of a sample is to be counted once in each.
struct ImageCounters {
  int64_t decoded = 0;    // pictures decoded
  int64_t processed = 0;  // pictures resized and normalised by ImageProcessor::process
};
ImageCounters image_counters();

}  // namespace vlmtune
