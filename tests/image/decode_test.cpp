// Decoding against Pillow, and what is refused.
#include <gmock/gmock.h>

#include <cmath>

#include "lib/base/errors.h"
#include "lib/image/source.h"
#include "tests/image/golden.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::span<const std::byte> bytes(const std::string& data) { return std::as_bytes(std::span(data)); }

struct Difference {
  double mean = 0, largest = 0;
};

/// Of the three channel means and two corner pixels.
Difference difference(const Image& image, const nlohmann::json& expected) {
  double sums[3] = {};
  for (size_t i = 0; i < image.rgb.size(); ++i) sums[i % 3] += image.rgb[i];
  Difference difference;
  for (size_t c = 0; c < 3; ++c) {
    const double mean = sums[c] / static_cast<double>(image.rgb.size() / 3);
    difference.mean = std::max(difference.mean, std::abs(mean - expected["mean_rgb"][c].get<double>()));
    const double first = std::abs(image.rgb[c] - expected["first_pixel"][c].get<double>());
    const double last = std::abs(image.rgb[image.rgb.size() - 3 + c] - expected["last_pixel"][c].get<double>());
    difference.largest = std::max({difference.largest, first, last});
  }
  return difference;
}

class Difficult : public ::testing::TestWithParam<nlohmann::json> {};

TEST_P(Difficult, DecodesAsPillowOrIsRefused) {
  const auto& expected = GetParam();
  const fs::path path = test::kImageGoldens / "difficult" / expected["file"].get<std::string>();
  const std::string data = read_file(path);
  const std::string name = path.filename().string();
  if (expected.contains("error") || expected["format"] == "TIFF") {
    try {
      decode_image(bytes(data), name);
      FAIL() << name << " was decoded";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
    return;
  }
  const Image image = decode_image(bytes(data), name);
  EXPECT_EQ(image.size(), (ImageSize{expected["size"][0], expected["size"][1]}));
  EXPECT_EQ(probe_image(bytes(data), name), image.size());
  const bool exact = expected["format"] != "JPEG" && expected["format"] != "WEBP";
  const auto [mean, largest] = difference(image, expected);
  EXPECT_LE(mean, exact ? 0.01 : 0.1);
  EXPECT_LE(largest, exact ? 0 : 2);
}

std::vector<nlohmann::json> difficult_files() {
  const auto manifest = test::read_json(test::kImageGoldens / "difficult/manifest.json");
  return {manifest.begin(), manifest.end()};
}

INSTANTIATE_TEST_SUITE_P(Image, Difficult, ::testing::ValuesIn(difficult_files()), [](const auto& info) {
  std::string name = info.param["file"];
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

// Every prefix of a picture is refused, and never crashes.
TEST(Decode, PrefixesNeverCrash) {
  for (const char* file : {"hopper_16bit_qtables.jpg", "p_trns_single.png", "hopper.webp", "hopper.gif",
                           "bmp_g_rgb16-565.bmp", "orientation_rectangle.jpg", "apng_mode_16bit.png"}) {
    const std::string data = read_file(test::kImageGoldens / "difficult" / file);
    const size_t step = std::max<size_t>(1, data.size() / 200);
    for (size_t size = 0; size + 1 < data.size(); size += step) {
      const std::string prefix = data.substr(0, size);
      EXPECT_THROW(decode_image(bytes(prefix), file), UserError) << file << " cut to " << size;
    }
  }
}

std::string refusal(const std::string& content) {
  try {
    decode_image(bytes(content), "picture.jpg");
  } catch (const UserError& error) {
    return error.what();
  }
  return "decoded";
}

TEST(Decode, NamesTheContainerAndWhatIsSupported) {
  EXPECT_THAT(refusal(""), HasSubstr("picture.jpg: the picture file is empty"));
  EXPECT_THAT(refusal("<!DOCTYPE html><html><body>404</body></html>"), HasSubstr("an HTML page"));
  EXPECT_THAT(refusal(std::string("\0\0\0\x1c"
                                  "ftypavif\0\0\0\0",
                                  16)),
              HasSubstr("an AVIF picture"));
  EXPECT_THAT(refusal(std::string("II*\0\0\0\0\0", 8)), HasSubstr("a TIFF picture"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("Git LFS pointer"));
  EXPECT_THAT(refusal("hello"), HasSubstr("supported are JPEG, PNG, WebP, GIF, BMP and binary PNM"));
}

TEST(Decode, RefusesBeforeAllocating) {
  std::string png("\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\xEA\x60\0\0\xEA\x60\x08\x02\0\0\0\0\0\0\0", 33);  // 60000 x 60000
  EXPECT_THAT(refusal(png), HasSubstr("60000 x 60000 pixels, more than the limit of 178956970"));
  EXPECT_THAT(refusal("P6 0 5 255\n"), HasSubstr("0 x 5"));
  EXPECT_THAT(refusal("P6 2000000000 2000000000 255\n"), HasSubstr("limit"));
}

TEST(Decode, CmykPixels) {
  const Image image = test::decode_file(test::kImageGoldens / "difficult/pil_sample_cmyk.jpg");
  EXPECT_EQ(image.rgb[0], 255);
  EXPECT_NEAR(image.rgb[1], 13, 2);
  EXPECT_NEAR(image.rgb[2], 25, 2);
}

TEST(Decode, SixteenBitsKeepTheirHighByte) {
  const std::string pnm = std::string("P5 2 1 65535\n") + std::string("\x12\x34\xFF\xFE", 4);
  const Image image = decode_image(bytes(pnm), "grey.pgm");
  EXPECT_EQ(image.rgb, (std::vector<uint8_t>{0x12, 0x12, 0x12, 0xFF, 0xFF, 0xFF}));
}

TEST(Source, PathsAndUris) {
  const fs::path folder = test::kImageGoldens;
  const std::string content = read_file(folder / "64x48.png");
  EXPECT_EQ(read_image_source("64x48.png", folder), content);
  EXPECT_EQ(read_image_source("file://" + (folder / "64x48.png").string(), "/nowhere"), content);
  EXPECT_EQ(read_image_source("file://" + (folder / "%364x48.png").string(), ""), content);
  EXPECT_EQ(read_image_source("data:image/png;base64,aGVsbG8=", ""), "hello");
  EXPECT_EQ(read_image_source("data:;base64,aGVs\nbG8", ""), "hello");
  EXPECT_EQ(probe_image_source("53x37.png", folder), (ImageSize{53, 37}));
  EXPECT_EQ(load_image("53x37.png", folder).size(), (ImageSize{53, 37}));
  EXPECT_THAT([] { read_image_source("https://host/cat.jpg", ""); },
              ThrowsMessage<UserError>(HasSubstr("not fetched over the network")));
  EXPECT_THAT([] { read_image_source("missing.png", "/nowhere"); },
              ThrowsMessage<UserError>(HasSubstr("/nowhere/missing.png")));
  EXPECT_THAT([] { read_image_source("data:image/png;base64,a$b", ""); },
              ThrowsMessage<UserError>(HasSubstr("byte 1")));
  EXPECT_THROW(read_image_source("data:image/png,raw", ""), UserError);
  EXPECT_THROW(read_image_source("data:image/png;base64,abcde", ""), UserError);
  EXPECT_THROW(read_image_source("", ""), UserError);
}

}  // namespace
}  // namespace vlmtune
