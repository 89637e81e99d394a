// Videos as lists of frames against transformers: pixels, token counts, positions, features, logits, gradients, tokens.
#include <nlohmann/json.hpp>

#include "lib/base/files.h"
#include "lib/image/codecs.h"
#include "lib/models/qwen_vl/patches.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

class Videos : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string("videos/") + GetParam(); }
  fs::path model_folder() const { return golden_path(std::string("models/") + GetParam()); }
  Golden golden_{folder()};
};

std::vector<std::vector<std::string>> frames_of(const fs::path& folder) {
  return nlohmann::json::parse(read_file(folder / "golden.json")).at("videos");
}

TEST_P(Videos, PixelsAndTokenCounts) {
  const auto config = read_vlm_config(model_folder(), std::nullopt, {});
  auto processor =
      ImageProcessor::parse(read_file(golden_path(folder()) / "video_preprocessor_config.json"), "video processor");
  config.vision->adapt_video(processor, "video processor");
  processor.frames_per_second = golden_.number("fps");
  const auto videos = frames_of(golden_path(folder()));
  const auto expected = read_videos(golden_, config, {0, 1});
  const auto tokens = golden_.integers("video_tokens");
  for (size_t i = 0; i < videos.size(); ++i) {
    std::vector<Image> frames;
    for (const auto& name : videos[i]) {
      const auto encoded = read_file(golden_path("videos/frames/" + name));
      frames.push_back(decode_image(std::as_bytes(std::span(encoded)), name));
    }
    const auto video = processor.process_video(frames);
    const auto shape = processor.shape_of_video(frames[0].size(), static_cast<int>(frames.size()));
    EXPECT_TRUE(video.is_video());
    EXPECT_EQ(std::tuple(video.tiles, video.height, video.width), std::tuple(shape.tiles, shape.height, shape.width));
    EXPECT_EQ(config.vision->image_tokens(shape), tokens[i]);
    const auto pixels = torch::tensor(video.pixels).view({video.tiles, 3, video.height, video.width});
    // transformers scales frames in torchvision, which rounds to other bytes than Pillow at times: to the next ones.
    const bool scaled = video.height != frames[0].height || video.width != frames[0].width;
    expect_close(pixels, expected.pixels[i], scaled ? 1.01 / 255 / 0.26 : 1e-6, "pixels");
  }
}

TEST_P(Videos, FeaturesLogitsLossAndGradients) {
  const auto model = load_model(model_folder(), train_everything());
  const auto features = model->encode_images(read_videos(golden_, model->config(), {0, 1}), torch::kFloat, {}).tokens;
  auto expected = golden_.tensor("video_features");
  if (expected.dim() == 2) {
    expect_close(features, expected, 1e-5, "video features");
  } else {  // without the newline behind each video
    const auto tokens = expected.size(1) + 1;
    for (int64_t i = 0; i < expected.size(0); ++i)
      expect_close(features.narrow(0, i * tokens, tokens - 1), expected[i], 1e-5, "video features");
  }
  const auto batch = read_batch(golden_, model->config());
  expect_logits(forward_logits(*model, batch), golden_, batch);
  std::map<std::string, Tensor> gradients;
  EXPECT_NEAR(forward_loss(*model, batch, &gradients), golden_.number("loss"), kLossTolerance * golden_.number("loss"));
  expect_gradients(gradients, golden_,
                   [](const std::string& name) { return canonical_tensor_name(name, PartKind::kWhole); });
}

TEST_P(Videos, Positions) {
  if (!golden_.has_tensor("position_ids")) return;
  const auto model = load_model(model_folder());
  const auto batch = read_batch(golden_, model->config());
  const auto found = model->positions(batch.ids, batch.images.shapes, {});
  EXPECT_TRUE(torch::equal(found * batch.mask, golden_.tensor("position_ids")));
}

TEST_P(Videos, GreedyTokens) {
  const auto model = load_model(model_folder());
  const auto prompts = golden_.generate("generate");
  const auto together = greedy(*model, golden_, prompts, read_stop_ids(model_folder()));
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(together[i], prompts[i].tokens) << i;
}
INSTANTIATE_TEST_SUITE_P(Goldens, Videos,
                         testing::Values("qwen2-vl", "qwen2-vl-tied", "qwen2.5-vl", "llava-onevision-siglip-qwen2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace vlmtune::test
