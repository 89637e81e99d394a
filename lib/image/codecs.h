// The formats one by one, for image.cpp: each is given bytes whose first ones are already known to be its own.
// Decoders return the picture before EXIF orientation; they throw input_error naming the picture.
#pragma once
#include <functional>
#include <string_view>

#include "lib/base/errors.h"
#include "lib/image/image.h"

namespace vlmtune::codecs {

using Bytes = std::span<const std::byte>;

/// Size before orientation, EXIF orientation 1..8.
struct Header {
  ImageSize size;
  int orientation = 1;
};

/// Throws input_error when a declared size is empty or beyond kMaxImagePixels.
void check_size(int64_t width, int64_t height, const std::string& name);

/// "NAME: the FORMAT picture is damaged or truncated (REASON)".
UserError damaged(const std::string& name, std::string_view format, std::string_view reason);

Header read_jpeg_header(Bytes bytes, const std::string& name);
Image decode_jpeg(Bytes bytes, const std::string& name);
Header read_png_header(Bytes bytes, const std::string& name);
Image decode_png(Bytes bytes, const std::string& name);
Header read_webp_header(Bytes bytes, const std::string& name);
Image decode_webp(Bytes bytes, const std::string& name);
Header read_gif_header(Bytes bytes, const std::string& name);
Image decode_gif(Bytes bytes, const std::string& name);
Header read_bmp_header(Bytes bytes, const std::string& name);
Image decode_bmp(Bytes bytes, const std::string& name);
Header read_pnm_header(Bytes bytes, const std::string& name);
Image decode_pnm(Bytes bytes, const std::string& name);

/// Orientation of an EXIF block (TIFF header first, an "Exif\0\0" before it is skipped); 1 when it says nothing sensible.
int exif_orientation(Bytes exif);

/// tiff:Orientation of an XMP packet, or 0.
int xmp_orientation(Bytes xmp);

/// RGBA to RGB over white, rounded as Pillow's paste with a mask does.
Image composite_on_white(const uint8_t* rgba, int width, int height);

inline uint8_t byte_at(Bytes bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }
inline uint32_t little16(Bytes bytes, size_t i) { return byte_at(bytes, i) | uint32_t{byte_at(bytes, i + 1)} << 8; }
inline uint32_t little32(Bytes bytes, size_t i) { return little16(bytes, i) | little16(bytes, i + 2) << 16; }
inline uint32_t big16(Bytes bytes, size_t i) { return uint32_t{byte_at(bytes, i)} << 8 | byte_at(bytes, i + 1); }
inline uint32_t big32(Bytes bytes, size_t i) { return big16(bytes, i) << 16 | big16(bytes, i + 2); }
inline std::string_view text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace vlmtune::codecs
