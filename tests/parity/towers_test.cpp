// Towers beside CLIP and SigLIP against transformers, and checkpoints in LLaVA's own layout.
#include <nlohmann/json.hpp>

#include "lib/base/files.h"
#include "lib/image/codecs.h"
#include "lib/models/llava/config.h"
#include "lib/models/llava/original.h"
#include "lib/models/vit/config.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

/// A tower of a golden folder with a language model that is another, everything trained.
struct LightTower {
  fs::path dir, language = golden_path("models/llama");
  VlmConfig config;
  std::unique_ptr<Vision> vision;

  explicit LightTower(const std::string& folder) : dir(golden_path(folder)) {
    config = read_vlm_config(language, dir, {.projector_type = "linear", .vision_select_layer = -1});
    VlmModel model(config);
    auto options = train_everything();
    options.fresh = [&](const std::string& name, torch::IntArrayRef shape) {
      return fresh_projector_tensor(name, shape, 1, config);
    };
    load_weights(
        model,
        {{Checkpoint::open(language), PartKind::kLanguageModel}, {Checkpoint::open(dir), PartKind::kVisionTower}},
        options);
    std::map<std::string, Tensor> loaded;
    model.visit([&](const std::string& name, Tensor& tensor) { loaded[name] = tensor; });
    vision = config.vision->build(VlmParts::kTower);
    vision->visit([&](const std::string& name, Tensor& slot) { slot = loaded.at(name).detach().requires_grad_(); });
  }

  /// Of the features' products with the golden's weights, by name; the pixels' under "pixels".
  std::map<std::string, Tensor> gradients(const Golden& golden, const TrainingMode& mode) {
    vision->visit([&](const std::string&, Tensor& tensor) { tensor.mutable_grad().reset(); });
    const auto pixels = golden.tensor("pixel_values").requires_grad_();
    const auto features = vision->tower(pixels, torch::kFloat, mode);
    expect_close(features.detach(), golden.tensor("features"), 1e-5, "features");
    const auto loss = (features * golden.tensor("loss_weights")).mean();
    EXPECT_NEAR(loss.item<double>(), golden.number("loss"), 1e-6);
    loss.backward();
    std::map<std::string, Tensor> found{{"pixels", pixels.grad()}};
    vision->visit([&](const std::string& name, Tensor& tensor) {
      if (tensor.grad().defined()) found[name] = tensor.grad();
    });
    return found;
  }
};

class LightTowers : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string("models/") + GetParam(); }
  Golden golden_{folder()};
};

TEST_P(LightTowers, FeaturesAndGradients) {
  LightTower tower(folder());
  auto found = tower.gradients(golden_, {.training = true});
  const auto of_pixels = golden_.tensor("pixel_gradient");
  expect_close(found.at("pixels"), of_pixels, kGradientTolerance * of_pixels.abs().max().item<double>(),
               "pixel gradient");
  found.erase("pixels");
  expect_gradients(found, golden_,
                   [](const std::string& name) { return canonical_tensor_name(name, PartKind::kVisionTower); });
}

TEST_P(LightTowers, PixelsAndTokenCounts) {
  const LightTower tower(folder());
  auto processor = ImageProcessor::load(tower.dir);
  tower.config.vision->adapt(processor, tower.dir.string());
  const auto names = golden_.texts("images");
  const auto features = golden_.tensor("features");
  for (size_t i = 0; i < names.size(); ++i) {
    const auto encoded = read_file(golden_path("images/" + names[i]));
    const auto picture = processor.process(decode_image(std::as_bytes(std::span(encoded)), names[i]));
    const auto expected = golden_.tensor("pixel_values").narrow(0, static_cast<int64_t>(i), 1);
    expect_close(torch::from_blob(const_cast<float*>(picture.pixels.data()), expected.sizes()), expected, 1e-6,
                 "pixels");
    EXPECT_EQ(tower.config.vision->image_tokens(picture), features.size(1));
    EXPECT_EQ(tower.config.vision->tower_shape(picture), (std::vector<int64_t>{1, features.size(1), features.size(2)}));
  }
}

TEST_P(LightTowers, RecomputingIsBitForBit) {
  LightTower tower(folder());
  const auto kept = tower.gradients(golden_, {.training = true});
  for (const char* policy : {"full", "selective", "every:2"}) {
    const auto again =
        tower.gradients(golden_, {.training = true, .vision_checkpointing = RecomputePolicy::parse(policy)});
    ASSERT_EQ(again.size(), kept.size());
    for (const auto& [name, gradient] : kept)
      EXPECT_TRUE(torch::equal(again.at(name), gradient)) << policy << " " << name;
  }
}
INSTANTIATE_TEST_SUITE_P(Goldens, LightTowers, testing::Values("dinov2-vision", "convnextv2-vision"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('-'));
                         });

TEST(ConvNext, HiddenStates) {
  const Golden golden("models/convnextv2-vision");
  LightTower light("models/convnextv2-vision");
  const auto& config = *llava_vision(light.config).tower;
  const auto tower = config.build(config.last_state());
  std::map<std::string, Tensor> loaded;
  light.vision->visit([&](const std::string& name, Tensor& tensor) { loaded[name] = tensor; });
  tower->visit("model.vision_tower.", [&](const std::string& name, Tensor& slot) { slot = loaded.at(name); });
  const auto states = tower->hidden_states(golden.tensor("pixel_values"), {0, 1, 2, 3, 4}, {}, false);
  for (size_t i = 0; i < states.size(); ++i) {
    const auto expected = golden.tensor(fmt::format("hidden_states.{}", i));
    const auto state = static_cast<int64_t>(i);
    EXPECT_EQ(config.grid_side(state), expected.size(2));
    EXPECT_EQ(config.width(state), expected.size(1));
    expect_close(states[i], expected.flatten(2).transpose(1, 2), 1e-5, fmt::format("hidden state {}", i));
  }
}

TEST(ConvNext, ProjectorOfAUnifiedWidth) {
  for (const char* folder : {"dinov2-vision", "convnextv2-vision", "siglip-vision"}) {
    const auto config =
        read_vlm_config(golden_path("models/llama"), golden_path(std::string("models/") + folder),
                        {.projector_type = "mlp2x_gelu", .vision_select_layer = {}, .projector_width = 20});
    std::map<std::string, std::vector<int64_t>> shapes;
    config.vision->build(VlmParts::kWithoutTower)->visit([&](const std::string& name, Tensor& tensor) {
      shapes[name] = tensor.sizes().vec();
    });
    EXPECT_EQ(shapes.at("model.multi_modal_projector.linear_1.weight"),
              (std::vector<int64_t>{20, llava_vision(config).feature_size()}));
    EXPECT_EQ(shapes.at("model.multi_modal_projector.linear_2.weight"),
              (std::vector<int64_t>{config.text.hidden_size, 20}));
  }
  const auto wrong = [](const std::optional<fs::path>& tower, const char* type) {
    return message_of([&] {
      read_vlm_config(golden_path("models/llama"), tower,
                      {.projector_type = type, .vision_select_layer = {}, .projector_width = 20});
    });
  };
  EXPECT_THAT(wrong(golden_path("models/convnextv2-vision"), "linear"), testing::HasSubstr("/model/projector_width"));
  EXPECT_THAT(wrong(std::nullopt, "mlp2x_gelu"), testing::HasSubstr("/model/projector_width"));
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
    auto tower = std::make_shared<VitConfig>(dynamic_cast<const VitConfig&>(*own.tower));
    tower->image_size = table.at("image_size");
    tower->patch_size = table.at("patch_size");
    own.tower = tower;
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
