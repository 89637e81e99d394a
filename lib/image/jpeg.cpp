// JPEG by libjpeg-turbo with its defaults (exact IDCT, smooth chroma), as Pillow uses it.
#include <cstdio>  // before jpeglib.h, which needs FILE

#include <jpeglib.h>

#include <csetjmp>
#include <memory>

#include "lib/image/codecs.h"

namespace vlmtune::codecs {
namespace {

/// libjpeg's state, and where it goes when it gives up. C frames are left by longjmp, so functions that call libjpeg hold
/// nothing that needs a destructor.
struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
  int orientation = 1;

  explicit Decoder(Bytes bytes) {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr common) {
      auto* self = static_cast<Decoder*>(common->client_data);
      self->errors.format_message(common, self->message);
      std::longjmp(self->jump, 1);
    };
    errors.emit_message = [](j_common_ptr, int) {};  // Pillow lets warnings pass as well
    info.client_data = this;
    source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source.bytes_in_buffer = bytes.size();
    source.init_source = [](j_decompress_ptr) {};
    source.term_source = [](j_decompress_ptr) {};
    source.resync_to_restart = jpeg_resync_to_restart;
    source.fill_input_buffer = [](j_decompress_ptr d) -> boolean {
      auto* self = static_cast<Decoder*>(d->client_data);
      std::snprintf(self->message, sizeof(self->message), "it ends before its last marker");
      std::longjmp(self->jump, 1);
    };
    source.skip_input_data = [](j_decompress_ptr d, long count) {
      if (count <= 0) return;
      if (static_cast<size_t>(count) > d->src->bytes_in_buffer) d->src->fill_input_buffer(d);
      d->src->next_input_byte += count;
      d->src->bytes_in_buffer -= static_cast<size_t>(count);
    };
  }
  ~Decoder() { jpeg_destroy_decompress(&info); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

bool run_header(Decoder& d) {
  if (setjmp(d.jump) != 0) return false;
  jpeg_create_decompress(&d.info);
  d.info.client_data = &d;
  d.info.src = &d.source;
  jpeg_save_markers(&d.info, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&d.info, TRUE);
  return true;
}

/// Reads all rows to `out`, [H, W, components].
bool run_rows(Decoder& d, uint8_t* out) {
  if (setjmp(d.jump) != 0) return false;
  jpeg_start_decompress(&d.info);
  const size_t stride = static_cast<size_t>(d.info.output_width) * static_cast<size_t>(d.info.output_components);
  while (d.info.output_scanline < d.info.output_height) {
    JSAMPROW row = out + stride * d.info.output_scanline;
    jpeg_read_scanlines(&d.info, &row, 1);
  }
  jpeg_finish_decompress(&d.info);
  return true;
}

void read_header(Decoder& decoder, const std::string& name) {
  if (!run_header(decoder)) throw damaged(name, "JPEG", decoder.message);
  check_size(decoder.info.image_width, decoder.info.image_height, name);
  int from_xmp = 0;
  for (auto* marker = decoder.info.marker_list; marker != nullptr; marker = marker->next) {
    const Bytes data(reinterpret_cast<const std::byte*>(marker->data), marker->data_length);
    if (text(data).starts_with(std::string_view("Exif\0\0", 6)) && decoder.orientation == 1)
      decoder.orientation = exif_orientation(data);
    else if (text(data).starts_with("http://ns.adobe.com/xap/1.0/"))
      from_xmp = xmp_orientation(data);
  }
  if (decoder.orientation == 1 && from_xmp != 0) decoder.orientation = from_xmp;
}

/// Pillow's multiplication of two bytes as fractions of 255.
int multiply255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

/// CMYK as Adobe stores it (inverted: 255 is no ink) to RGB, by Pillow's formula.
void cmyk_to_rgb(const uint8_t* in, uint8_t* out, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i, in += 4, out += 3) {
    const int light = in[3];
    for (int c = 0; c < 3; ++c) {
      const int value = light - multiply255(255 - in[c], light);
      out[c] = static_cast<uint8_t>(value < 0 ? 0 : value);
    }
  }
}

}  // namespace

Header read_jpeg_header(Bytes bytes, const std::string& name) {
  Decoder decoder(bytes);
  read_header(decoder, name);
  return {{static_cast<int>(decoder.info.image_width), static_cast<int>(decoder.info.image_height)},
          decoder.orientation};
}

Image decode_jpeg(Bytes bytes, const std::string& name) {
  Decoder decoder(bytes);
  read_header(decoder, name);
  auto& info = decoder.info;
  const bool ink = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  if (!ink && info.num_components != 1 && info.num_components != 3)
    throw damaged(name, "JPEG", fmt::format("{} colour components", info.num_components));
  info.out_color_space = ink ? JCS_CMYK : JCS_RGB;  // libjpeg turns grey into RGB by itself
  const size_t pixels = size_t{info.image_width} * info.image_height;
  Image image{static_cast<int>(info.image_width), static_cast<int>(info.image_height), {}};
  std::vector<uint8_t> raw(pixels * (ink ? 4 : 3));
  if (!run_rows(decoder, raw.data())) throw damaged(name, "JPEG", decoder.message);
  if (!ink) {
    image.rgb = std::move(raw);
    return image;
  }
  image.rgb.resize(pixels * 3);
  cmyk_to_rgb(raw.data(), image.rgb.data(), pixels);
  return image;
}

}  // namespace vlmtune::codecs
