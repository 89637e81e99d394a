// Towers beside CLIP and SigLIP against transformers, and checkpoints in LLaVA's own layout.
#include <nlohmann/json.hpp>

#include "lib/base/files.h"
#include "lib/image/codecs.h"
#include "lib/models/llava/config.h"
#include "lib/models/llava/original.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

TEST(Dinov2, FeaturesAndGradients) {
  const auto dir = golden_path("models/dinov2-vision"), language = golden_path("models/llama");
  const Golden golden("models/dinov2-vision");
  const auto config = read_vlm_config(language, dir, {.projector_type = "linear", .vision_select_layer = -1});
  VlmModel model(config);
  auto options = train_everything();
  options.fresh = [&](const std::string& name, torch::IntArrayRef shape) {
    return fresh_projector_tensor(name, shape, 1, config);
  };
  load_weights(
      model, {{Checkpoint::open(language), PartKind::kLanguageModel}, {Checkpoint::open(dir), PartKind::kVisionTower}},
      options);
  std::map<std::string, Tensor> loaded;
  model.visit([&](const std::string& name, Tensor& tensor) { loaded[name] = tensor; });
  const auto tower = config.vision->build(VlmParts::kTower);
  tower->visit([&](const std::string& name, Tensor& slot) { slot = loaded.at(name).detach().requires_grad_(); });
  const auto features = tower->tower(golden.tensor("pixel_values"), torch::kFloat, {.training = true});
  expect_close(features, golden.tensor("features"), 1e-5, "features");
  const auto loss = (features * golden.tensor("loss_weights")).mean();
  EXPECT_NEAR(loss.item<double>(), golden.number("loss"), 1e-6);
  loss.backward();
  std::map<std::string, Tensor> gradients;
  tower->visit([&](const std::string& name, Tensor& tensor) {
    if (tensor.grad().defined()) gradients[name] = tensor.grad();
  });
  expect_gradients(gradients, golden, [](const std::string& name) { return "model.vision_tower." + name; });
}

TEST(OneVision, PixelsAndTokenCounts) {
  const auto dir = golden_path("models/llava-onevision-siglip-qwen2");
  const Golden golden("models/llava-onevision-siglip-qwen2");
  const auto vision = read_vlm_config(dir, std::nullopt, {}).vision;
  auto processor = ImageProcessor::load(dir);
  vision->adapt(processor, dir.string());
  const auto names = golden.texts("images");
  const auto tiles = golden.integers("tiles"), tokens = golden.integers("image_tokens");
  for (size_t i = 0; i < names.size(); ++i) {
    SCOPED_TRACE(names[i]);
    const auto file = fs::exists(dir / names[i]) ? dir / names[i] : golden_path("images/" + names[i]);
    const auto encoded = read_file(file);
    const auto picture = processor.process(decode_image(std::as_bytes(std::span(encoded)), names[i]), tiles[i] > 1);
    ASSERT_EQ(picture.tiles, tiles[i]);
    EXPECT_EQ(vision->image_tokens(picture), tokens[i]);
    const auto expected = golden.tensor("pixel_values")[static_cast<int64_t>(i)].narrow(0, 0, tiles[i]);
    expect_close(torch::from_blob(const_cast<float*>(picture.pixels.data()), expected.sizes()), expected, 1e-6,
                 "pixels");
  }
  const auto json = nlohmann::json::parse(read_file(dir / "anyres.json"));
  int compared = 0;
  for (const auto& table : json.at("tables")) {
    auto own = llava_vision(read_vlm_config(dir, std::nullopt, {}));
    own.max_tiles = std::stoi(table.at("vision_aspect_ratio").get<std::string>().substr(11));
    own.vit.image_size = table.at("image_size");
    own.vit.patch_size = table.at("patch_size");
    own.grid_pinpoints.clear();
    for (const auto& pair : table.at("grid_pinpoints")) own.grid_pinpoints.push_back({pair[1], pair[0]});
    for (const auto& row : table.at("rows")) {
      const PictureShape shape{.original = {.width = row[1], .height = row[0]}, .tiles = 2};
      EXPECT_EQ(own.image_tokens(shape), row.back().get<int64_t>()) << row;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(LlavaNext, OnLlama3AsPublished) {
  const std::string folder = "models/llava-next-clip-llama3";
  const Golden golden(folder);
  const auto model = load_model(golden_path(folder));
  const auto batch = read_batch(golden, model->config());
  expect_logits(forward_logits(*model, batch), golden, batch);
  const auto prompts = golden.generate("generate");
  const auto tokens = greedy(*model, golden, prompts, read_stop_ids(golden_path(folder)));
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(tokens[i], prompts[i].tokens);
}

class OriginalLayout : public testing::TestWithParam<const char*> {};

TEST_P(OriginalLayout, IsTheSameModel) {
  const auto dir = golden_path(std::string("models/") + GetParam());
  const Golden golden(std::string("models/") + GetParam());
  const auto tower = original_llava_tower(dir);
  ASSERT_TRUE(tower);
  auto config = read_vlm_config(dir, std::nullopt, {});
  config.image_token_id = 132;
  VlmModel model(config);
  std::vector<WeightSource> sources{{Checkpoint::open(dir), PartKind::kWhole}};
  if (std::string(GetParam()).ends_with("no-tower"))
    sources.push_back({Checkpoint::open(*tower), PartKind::kVisionTower});
  load_weights(model, sources, train_everything());
  const auto batch = read_batch(golden, model.config());
  expect_logits(forward_logits(model, batch), golden, batch);
}
INSTANTIATE_TEST_SUITE_P(Goldens, OriginalLayout,
                         testing::Values("llava-original-clip-llama", "llava-original-clip-llama-no-tower",
                                         "llava-original-next-clip-mistral"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace vlmtune::test
