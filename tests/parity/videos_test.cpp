// Videos as lists of frames against transformers: pixels, token counts, positions, features, logits, gradients, tokens.
#include <nlohmann/json.hpp>

#include "lib/base/files.h"
#include "lib/data/example.h"
#include "lib/image/codecs.h"
#include "lib/models/qwen_vl/patches.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

/// transformers scales frames in torchvision, which rounds to other bytes than Pillow at times: to the next ones.
constexpr double kOneByte = 1.01 / 255 / 0.26;

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
  const auto tokens = golden_.integers("video_tokens");
  for (size_t i = 0; i < videos.size(); ++i) {
    std::vector<Image> frames;
    for (const auto& name : videos[i]) {
      const auto encoded = read_file(golden_path("videos/frames/" + name));
      frames.push_back(decode_image(std::as_bytes(std::span(encoded)), name));
    }
    const auto shape = processor.shape_of_video(frames[0].size(), static_cast<int>(frames.size()));
    const auto video = processor.process_video(frames, shape);
    EXPECT_TRUE(video.is_video());
    EXPECT_EQ(config.vision->image_tokens(shape), tokens[i]);
    const auto pixels = torch::tensor(video.pixels).view({video.tiles, 3, video.height, video.width});
    const bool scaled = video.height != frames[0].height || video.width != frames[0].width;
    expect_close(pixels, torch::cat(read_videos(golden_, config, {static_cast<int64_t>(i)}).pixels),
                 scaled ? kOneByte : 1e-6, "pixels");
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

TEST_P(Videos, Prompts) {
  if (!golden_.has("prompts")) return;
  const auto folder = golden_path(this->folder());
  const auto config = read_vlm_config(model_folder(), std::nullopt, {});
  const auto of_pictures = ImageProcessor::load(model_folder());
  auto of_videos = ImageProcessor::parse(read_file(folder / "video_preprocessor_config.json"), "video processor");
  config.vision->adapt_video(of_videos, "video processor");
  const auto tokenizer = Tokenizer::load(folder);
  const auto text = config.vision->picture_text();
  const auto chatml = ChatTemplate::named("chatml", {.image_token = text.token,
                                                     .video_token = text.video_token,
                                                     .image_before = text.before,
                                                     .image_after = text.after});
  Row row;
  using Kind = MessagePart::Kind;
  row.messages = {{"user", {{Kind::kVideo, ""}, {Kind::kImage, ""}, {Kind::kVideo, ""}, {Kind::kText, "moves?"}}}};
  row.images = {golden_path("images/" + golden_.texts("images")[0]).string()};
  for (const auto& video : frames_of(folder)) {
    row.videos.emplace_back();
    for (const auto& name : video) row.videos.back().push_back(golden_path("videos/frames/" + name).string());
  }
  EXPECT_EQ(chatml.render_text(row.messages, false), golden_.text("text"));
  for (const auto& prompt : nlohmann::json::parse(read_file(folder / "golden.json")).at("prompts")) {
    of_videos.frames_per_second = prompt.at("fps");
    ExampleOptions options;
    options.tokenizer = tokenizer.get();
    options.chat_template = &chatml;
    options.image_processor = &of_pictures;
    options.video_processor = &of_videos;
    options.time_brackets = TimeBrackets{text.before, text.after};
    options.image_tokens = [&](const PictureShape& shape) { return config.vision->image_tokens(shape); };
    options.image_token_id = *tokenizer->id_of(text.token);
    options.video_token_id = *tokenizer->id_of(text.video_token);
    const ExampleBuilder builder(options);
    const auto example = builder.build_prompt(row);
    const auto wanted = prompt.at("ids").get<std::vector<int64_t>>();
    // A template of a chat's answers begins one, which the golden's text does not.
    ASSERT_GT(example.ids.size(), wanted.size());
    EXPECT_EQ(std::vector(example.ids.begin(), example.ids.begin() + static_cast<std::ptrdiff_t>(wanted.size())),
              wanted);
    std::vector<Tensor> pixels;
    for (const auto& image : example.images)
      if (image.is_video())
        pixels.push_back(torch::tensor(image.pixels).view({image.tiles, 3, image.height, image.width}));
    const auto expected = read_videos(golden_, config, {0, 1}).pixels;
    ASSERT_EQ(pixels.size(), expected.size());
    for (size_t i = 0; i < pixels.size(); ++i) expect_close(pixels[i], expected[i], kOneByte, "pixels of a time");
  }
}

TEST(SmartResize, EqualsTransformersOverAllFrames) {
  ImageProcessor p;
  p.aspect_ratio = AspectRatio::kDynamic;
  p.patch_size = 16;
  p.frames_per_patch = 2;
  p.max_pixels = kMaxImagePixels;
  for (const auto& row :
       nlohmann::json::parse(read_file(golden_path("videos/qwen3-vl/golden.json"))).at("smart_resize")) {
    p.min_video_pixels = row[3];
    p.max_video_pixels = row[4];
    const auto shape = p.shape_of_video({.width = row[2], .height = row[1]}, row[0]);
    EXPECT_EQ(std::pair(shape.height, shape.width), std::pair(row[5].get<int>(), row[6].get<int>())) << row;
  }
}

TEST_P(Videos, GreedyTokens) {
  const auto model = load_model(model_folder());
  const auto prompts = golden_.generate("generate");
  const auto together = greedy(*model, golden_, prompts, read_stop_ids(model_folder()));
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(together[i], prompts[i].tokens) << i;
}
INSTANTIATE_TEST_SUITE_P(Goldens, Videos,
                         testing::Values("qwen2-vl", "qwen2-vl-tied", "qwen2.5-vl", "qwen3-vl",
                                         "llava-onevision-siglip-qwen2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace vlmtune::test
