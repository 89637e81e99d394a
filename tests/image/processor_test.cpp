// Resize, pixel_values and token counts against Pillow and transformers.
#include "lib/image/processor.h"

#include <gmock/gmock.h>

#include <cstring>

#include "lib/base/errors.h"
#include "lib/image/anyres.h"
#include "tests/image/golden.h"

namespace vlmtune {
namespace {

using ::testing::HasSubstr;

const nlohmann::json& golden() {
  static const auto json = test::read_json(test::kImageGoldens / "golden.json");
  return json;
}

TEST(Resize, EqualsPillowBitForBit) {
  const std::string expected = read_file(test::kImageGoldens / "resized.bin");
  for (const auto& c : golden()["resize"]) {
    const Image image = test::decode_file(test::kImageGoldens / c["image"].get<std::string>());
    const Image out = resize_image(image, c["width"], c["height"], static_cast<Resample>(c["resample"].get<int>()));
    EXPECT_EQ(std::memcmp(out.rgb.data(), expected.data() + c["offset"].get<size_t>(), out.rgb.size()), 0) << c;
  }
}

TEST(Processor, EqualsTransformers) {
  const std::string expected = read_file(test::kImageGoldens / "pixels.bin");
  for (const auto& c : golden()["processors"]) {
    const Image image = test::decode_file(test::kImageGoldens / c["image"].get<std::string>());
    const auto processor = ImageProcessor::parse(c["config"].dump(), "config");
    const ProcessedImage out = processor.process(image);
    EXPECT_EQ((std::vector<int>{out.tiles, 3, out.height, out.width}), c["shape"].get<std::vector<int>>()) << c;
    const PictureShape shape = processor.shape_of(image.size());
    EXPECT_EQ(out.tiles, shape.tiles);
    EXPECT_EQ((ImageSize{out.width, out.height}), (ImageSize{shape.width, shape.height}));
    EXPECT_EQ((ImageSize{out.width, out.height}), processor.tile_size());
    EXPECT_EQ(out.original, image.size());
    std::vector<float> values(out.pixels.size());
    std::memcpy(values.data(), expected.data() + c["offset"].get<size_t>(), values.size() * sizeof(float));
    float largest = 0;
    for (size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::abs(values[i] - out.pixels[i]));
    EXPECT_LE(largest, 1e-6) << c["kind"] << " " << c["image"];
  }
}

TEST(Processor, CountsEachPictureOnce) {
  const auto before = image_counters();
  const Image image = test::decode_file(test::kImageGoldens / "64x48.png");
  ImageProcessor processor;
  processor.process(image);
  const auto after = image_counters();
  EXPECT_EQ(after.decoded - before.decoded, 1);
  EXPECT_EQ(after.processed - before.processed, 1);
}

TEST(Processor, PadIsLlavasExpandToSquare) {
  const Image image{1, 4, std::vector<uint8_t>(12, 9)};  // odd difference: one column left, two right
  const Image out = pad_to_square(image, {122, 116, 104});
  ASSERT_EQ(out.size(), (ImageSize{4, 4}));
  EXPECT_EQ(std::vector<uint8_t>(out.rgb.begin(), out.rgb.begin() + 9),
            (std::vector<uint8_t>{122, 116, 104, 9, 9, 9, 122, 116, 104}));
}

TEST(Processor, SpellingsOfTheConfig) {
  const auto old = ImageProcessor::parse(
      R"({"feature_extractor_type": "CLIPFeatureExtractor", "size": 336, "crop_size": 336, "resample": 3, "image_mean": null})",
      "f");
  EXPECT_EQ(old.shortest_edge, 336);
  EXPECT_EQ(old.tile_size(), (ImageSize{336, 336}));
  EXPECT_EQ(old.image_mean[0], 0.48145466);
  const auto fast = ImageProcessor::parse(
      R"({"image_processor_type": "SiglipImageProcessorFast", "size": {"height": 384, "width": 384}})", "f");
  EXPECT_EQ(fast.tile_size(), (ImageSize{384, 384}));
  EXPECT_EQ(fast.image_std[2], 0.5);
  const auto nested = ImageProcessor::parse(
      R"({"image_processor": {"image_processor_type": "LlavaNextImageProcessor", "image_grid_pinpoints": [[336, 672]]}})",
      "f");
  EXPECT_EQ(nested.aspect_ratio, AspectRatio::kAnyres);
  EXPECT_EQ(nested.grid_pinpoints, (std::vector<ImageSize>{{672, 336}}));
  const auto convnext =
      ImageProcessor::parse(R"({"feature_extractor_type": "ConvNextFeatureExtractor", "size": 224})", "f");
  EXPECT_EQ(convnext.shortest_edge, 256);  // of which the middle is cut
  EXPECT_EQ(convnext.tile_size(), (ImageSize{224, 224}));
  EXPECT_EQ(convnext.image_mean[0], 0.5);
  const auto stretched = ImageProcessor::parse(
      R"({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}, "crop_pct": 0.9})", "f");
  EXPECT_FALSE(stretched.do_center_crop);
  EXPECT_EQ(stretched.tile_size(), (ImageSize{384, 384}));
}

TEST(Processor, WrongConfigNamesTheKey) {
  const auto message = [](const char* json) {
    try {
      ImageProcessor::parse(json, "preprocessor_config.json");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message("[1]"), HasSubstr("preprocessor_config.json"));
  EXPECT_THAT(message(R"({"image_processor_type": "ViTImageProcessor"})"), HasSubstr("expected CLIPImageProcessor"));
  EXPECT_THAT(message(R"({"size": {"edge": 3}})"), HasSubstr("/size"));
  EXPECT_THAT(message(R"({"size": 0})"), HasSubstr("/size"));
  EXPECT_THAT(message(R"({"image_std": [0, 1, 1]})"), HasSubstr("/image_std"));
  EXPECT_THAT(message(R"({"resample": 9})"), HasSubstr("/resample"));
  EXPECT_THAT(message(R"({"image_processor_type": "ConvNextImageProcessor", "crop_pct": 0})"), HasSubstr("/crop_pct"));
  EXPECT_THAT(message(R"({"image_processor_type": "ConvNextImageProcessor", "size": {"height": 5, "width": 5}})"),
              HasSubstr("/size"));
}

TEST(Anyres, TokenCountsEqualTransformers) {
  const auto& table = golden()["llava_next"];
  std::vector<ImageSize> pinpoints;
  for (const auto& pair : table["pinpoints"]) pinpoints.push_back({pair[1], pair[0]});
  for (const auto& c : table["cases"]) {
    const AnyresLayout layout = anyres_layout({c[0], c[1]}, pinpoints, table["tile"], table["patches"]);
    EXPECT_EQ(layout.num_tokens(), c[2].get<int64_t>()) << c;
    EXPECT_EQ(layout.height, c[3].get<int>()) << c;
    EXPECT_EQ(layout.width, c[4].get<int>()) << c;
  }
}

TEST(Anyres, PublishedCases) {
  const std::vector<ImageSize> pinpoints{{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
  const auto tokens = [&](int height, int width) {
    return llava_next_image_tokens({width, height}, pinpoints, 336, 24);
  };
  EXPECT_EQ(tokens(480, 640), 2340);
  EXPECT_EQ(tokens(1080, 1920), 1948);
  EXPECT_EQ(tokens(100, 1000), 1160);
  EXPECT_EQ(tokens(1000, 100), 1224);
  EXPECT_THROW(select_best_resolution({5, 5}, {}), UserError);
}

}  // namespace
}  // namespace vlmtune
