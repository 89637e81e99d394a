// PNG by libpng. Chunks that tell the orientation are found by walking the file, so that probing decodes nothing.
#include <png.h>
#include <zlib.h>

#include <csetjmp>
#include <cstring>

#include "lib/image/codecs.h"

namespace vlmtune::codecs {
namespace {

struct Reader {
  Bytes rest;
  std::jmp_buf jump;
  char message[128] = "";
  png_structp png = nullptr;
  png_infop info = nullptr;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void on_error(png_structp png, png_const_charp message) {
  auto* self = static_cast<Reader*>(png_get_error_ptr(png));
  std::snprintf(self->message, sizeof(self->message), "%s", message);
  std::longjmp(self->jump, 1);
}

void on_read(png_structp png, png_bytep out, size_t count) {
  auto* self = static_cast<Reader*>(png_get_io_ptr(png));
  if (count > self->rest.size()) png_error(png, "it ends before its last chunk");
  std::memcpy(out, self->rest.data(), count);
  self->rest = self->rest.subspan(count);
}

/// Reads the header and asks for 8-bit RGB or RGBA.
bool run_header(Reader& r) {
  if (setjmp(r.jump) != 0) return false;
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, [](png_structp, png_const_charp) {});
  if (r.png == nullptr) return false;
  r.info = png_create_info_struct(r.png);
  if (r.info == nullptr) return false;
  png_set_read_fn(r.png, &r, on_read);
  png_set_user_limits(r.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size is the limit
  png_set_benign_errors(r.png, 1);
  png_read_info(r.png, r.info);
  png_set_expand(r.png);
  png_set_strip_16(r.png);
  png_set_gray_to_rgb(r.png);
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  return true;
}

bool run_rows(Reader& r, uint8_t* out) {
  if (setjmp(r.jump) != 0) return false;
  const size_t stride = png_get_rowbytes(r.png, r.info);
  const uint32_t height = png_get_image_height(r.png, r.info);
  const int passes = png_get_interlace_type(r.png, r.info) == PNG_INTERLACE_ADAM7 ? 7 : 1;
  for (int pass = 0; pass < passes; ++pass)
    for (uint32_t y = 0; y < height; ++y) png_read_row(r.png, out + stride * y, nullptr);
  png_read_end(r.png, nullptr);
  return true;
}

/// At most 64 KiB of what zlib makes of `data`: enough for any orientation.
std::string inflate_head(Bytes data) {
  std::string out(1 << 16, '\0');
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_SYNC_FLUSH);
  out.resize(out.size() - stream.avail_out);
  inflateEnd(&stream);
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// ImageMagick's "Raw profile type exif": "\nexif\n  LENGTH\nHEX DIGITS".
int raw_profile_orientation(std::string_view profile) {
  size_t at = 0;
  for (int line = 0; line < 3 && at != std::string_view::npos; ++line) {
    at = profile.find('\n', at);
    if (at != std::string_view::npos) ++at;
  }
  if (at == std::string_view::npos) return 1;
  std::string exif;
  int high = -1;
  for (const char c : profile.substr(at)) {
    const int digit = hex_digit(c);
    if (digit < 0) continue;
    if (high >= 0) exif += static_cast<char>(high << 4 | digit);
    high = high >= 0 ? -1 : digit;
  }
  return exif_orientation(std::as_bytes(std::span(exif)));
}

/// Orientation by one chunk; 0 when the chunk says nothing about it.
int chunk_orientation(std::string_view type, Bytes data) {
  static constexpr std::string_view kProfile("Raw profile type exif\0", 22), kXmp("XML:com.adobe.xmp\0", 18);
  if (type == "eXIf") return exif_orientation(data);
  if (type == "tEXt" && text(data).starts_with(kProfile))
    return raw_profile_orientation(text(data).substr(kProfile.size()));
  if (type == "zTXt" && text(data).starts_with(kProfile) && data.size() > kProfile.size())
    return raw_profile_orientation(inflate_head(data.subspan(kProfile.size() + 1)));
  if (type == "iTXt" && text(data).starts_with(kXmp)) return xmp_orientation(data);
  return 0;
}

}  // namespace

Header read_png_header(Bytes bytes, const std::string& name) {
  if (bytes.size() < 33 || text(bytes.subspan(12, 4)) != "IHDR") throw damaged(name, "PNG", "it has no IHDR chunk");
  check_size(big32(bytes, 16), big32(bytes, 20), name);
  Header header{{static_cast<int>(big32(bytes, 16)), static_cast<int>(big32(bytes, 20))}, 1};
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = big32(bytes, at);
    if (length > bytes.size() - at - 12) break;
    const int found = chunk_orientation(text(bytes.subspan(at + 4, 4)), bytes.subspan(at + 8, length));
    if (found > 1) {
      header.orientation = found;
      break;
    }
    at += 12 + length;
  }
  return header;
}

Image decode_png(Bytes bytes, const std::string& name) {
  const Header header = read_png_header(bytes, name);
  Reader reader;
  reader.rest = bytes;
  if (!run_header(reader)) throw damaged(name, "PNG", reader.message);
  const size_t stride = png_get_rowbytes(reader.png, reader.info);
  const auto [width, height] = header.size;
  const size_t channels = png_get_channels(reader.png, reader.info);
  if ((channels != 3 && channels != 4) || stride != channels * static_cast<size_t>(width))
    throw damaged(name, "PNG", "its colour type is unknown");
  std::vector<uint8_t> raw(stride * static_cast<size_t>(height));
  if (!run_rows(reader, raw.data())) throw damaged(name, "PNG", reader.message);
  if (channels == 4) return composite_on_white(raw.data(), width, height);
  return {width, height, std::move(raw)};
}

}  // namespace vlmtune::codecs
