// WebP by libwebp: lossy, lossless, alpha; of an animation the first frame on its canvas.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "lib/image/codecs.h"

namespace vlmtune::codecs {
namespace {

const uint8_t* data(Bytes bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

/// Walks the RIFF chunks for metadata, which the demuxer would copy.
int orientation(Bytes bytes) {
  int from_xmp = 1;
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const size_t length = little32(bytes, at + 4);
    if (length > bytes.size() - at - 8) break;
    const auto type = text(bytes.subspan(at, 4));
    if (type == "EXIF") {
      const int found = exif_orientation(bytes.subspan(at + 8, length));
      if (found > 1) return found;
    }
    if (type == "XMP ") from_xmp = std::max(1, xmp_orientation(bytes.subspan(at + 8, length)));
    at += 8 + length + (length & 1);
  }
  return from_xmp;
}

WebPBitstreamFeatures read_features(Bytes bytes, const std::string& name) {
  WebPBitstreamFeatures features{};
  const auto status = WebPGetFeatures(data(bytes), bytes.size(), &features);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA) throw damaged(name, "WebP", "it ends before its header does");
  if (status != VP8_STATUS_OK) throw damaged(name, "WebP", "its header is not valid");
  check_size(features.width, features.height, name);
  return features;
}

Image decode_first_frame(Bytes bytes, const std::string& name) {
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);
  options.color_mode = MODE_RGBA;
  const WebPData input{data(bytes), bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(WebPAnimDecoderNew(&input, &options),
                                                                                   WebPAnimDecoderDelete);
  WebPAnimInfo info;
  uint8_t* frame = nullptr;
  int time = 0;
  if (!decoder || !WebPAnimDecoderGetInfo(decoder.get(), &info) ||
      !WebPAnimDecoderGetNext(decoder.get(), &frame, &time))
    throw damaged(name, "WebP", "its first frame cannot be decoded");
  return composite_on_white(frame, static_cast<int>(info.canvas_width), static_cast<int>(info.canvas_height));
}

}  // namespace

Header read_webp_header(Bytes bytes, const std::string& name) {
  const auto features = read_features(bytes, name);
  return {{features.width, features.height}, orientation(bytes)};
}

Image decode_webp(Bytes bytes, const std::string& name) {
  const auto features = read_features(bytes, name);
  const uint64_t declared = uint64_t{little32(bytes, 4)} + 8;
  if (declared > bytes.size()) throw damaged(name, "WebP", fmt::format("{} of {} bytes", bytes.size(), declared));
  if (features.has_animation) return decode_first_frame(bytes, name);
  const int width = features.width, height = features.height;
  const int channels = features.has_alpha ? 4 : 3;
  std::vector<uint8_t> raw(static_cast<size_t>(channels) * static_cast<size_t>(width) * static_cast<size_t>(height));
  const auto decode = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (decode(data(bytes), bytes.size(), raw.data(), raw.size(), channels * width) == nullptr)
    throw damaged(name, "WebP", "its pixels cannot be decoded");
  if (features.has_alpha) return composite_on_white(raw.data(), width, height);
  return {width, height, std::move(raw)};
}

}  // namespace vlmtune::codecs
