// Fuzz target: any bytes as a picture, any text as a preprocessor_config.json. Only input_error may come out.
#include <cstdint>
#include <string>

#include "lib/base/base64.h"
#include "lib/base/errors.h"
#include "lib/image/processor.h"
#include "lib/image/source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vlmtune;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const ImageSize probed = probe_image(bytes, "fuzz");
    if (int64_t{probed.width} * probed.height <= 1 << 20) {  // large pictures only cost time
      const Image image = decode_image(bytes, "fuzz");
      VLMTUNE_CHECK(image.size() == probed, "probe and decode disagree");
      VLMTUNE_CHECK(
          image.rgb.size() == size_t{3} * static_cast<size_t>(image.width) * static_cast<size_t>(image.height), "size");
    }
  } catch (const UserError&) {
  }
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    ImageProcessor::parse(text, "fuzz");
  } catch (const UserError&) {
  }
  try {
    decode_base64(text, "fuzz");
  } catch (const UserError&) {
  }
  return 0;
}
