// What is the first Qwen-VL's own: pixels, lengths beyond those of its training, names, errors.
#include <fstream>

#include "lib/base/files.h"
#include "lib/models/first_qwen_vl/config.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

class FirstQwenVl : public testing::Test {
 protected:
  fs::path dir_ = golden_path("models/qwen-vl");
  Golden golden_{"models/qwen-vl"};
  std::unique_ptr<VlmModel> model_ = load_model(dir_);
};

TEST_F(FirstQwenVl, Pixels) {
  const auto processor = model_->config().vision->default_processor();
  std::vector<Tensor> pixels;
  for (const auto& name : golden_.texts("images")) {
    const auto bytes = read_file(golden_path("images/" + name));
    const auto image = processor.process(decode_image(std::as_bytes(std::span(bytes)), name));
    pixels.push_back(torch::tensor(image.pixels).view({1, 3, image.height, image.width}));
  }
  expect_close(torch::cat(pixels, 0), golden_.tensor("pixel_values"), 1e-6, "pixel_values");
}

TEST_F(FirstQwenVl, LengthsBeyondThoseOfItsTraining) {
  const torch::NoGradGuard no_grad;
  const auto& config = model_->config();
  const auto all = with_slots(golden_.tensor("long.input_ids"), config);
  for (const std::string name : {"training", "inference", "inference_short"}) {
    const auto expected = golden_.tensor("long." + name);
    const auto ids = all.narrow(1, 0, expected.size(1));
    const auto in = model_->embed(ids, read_images(golden_, config, {0}), torch::kFloat, {});
    const auto hidden = model_->language_model().forward(
        in.tokens, {.positions = model_->positions(ids, {}, {}), .left_padding = {}, .training = name == "training"});
    expect_close(model_->logits(hidden), expected, kLogitsTolerance, name);
  }
}

TEST_F(FirstQwenVl, APromptsFrequenciesStay) {
  const auto prompts = golden_.generate("generate_beyond");
  EXPECT_EQ(greedy(*model_, golden_, prompts, read_stop_ids(dir_))[0], prompts[0].tokens);
}

TEST_F(FirstQwenVl, ComponentsAreThoseOfThePublishedTrainer) {
  std::map<Component, std::set<std::string>> modules;
  model_->visit([&](const std::string& name, Tensor&) { modules[component_of(name)].insert(memory_module(name)); });
  EXPECT_EQ(modules[Component::kProjector], std::set<std::string>{"multi_modal_projector"});
  EXPECT_EQ(modules[Component::kVisionTower],
            (std::set<std::string>{"vision_tower.embeddings", "vision_tower.layers.0", "vision_tower.layers.1"}));
  EXPECT_EQ(modules[Component::kLanguageModel],
            (std::set<std::string>{"embed_tokens", "layers.0", "layers.1", "lm_head", "norm"}));
  EXPECT_EQ(component_of("transformer.visual.proj"), Component::kVisionTower);
}

TEST_F(FirstQwenVl, BuffersOfPublishedFilesAreLeftAlone) {
  const auto& config = model_->config();
  EXPECT_TRUE(config.is_unused("transformer.rotary_emb.inv_freq"));
  EXPECT_TRUE(config.is_unused("transformer.h.0.attn.masked_bias"));
  EXPECT_FALSE(config.is_unused("transformer.h.0.attn.c_attn.bias"));
}

TEST(FirstQwen, IsTheSameWithoutPictures) {
  const Golden golden("models/qwen-vl");
  const Scratch scratch;
  std::string config = read_file(golden_path("models/qwen-vl") / "config.json");
  config.replace(config.find("\"visual\""), 8, "\"no_visual\"");
  write_file_atomic(scratch.path() / "config.json", config);
  std::map<std::string, Tensor> tensors;
  const auto whole = Checkpoint::open(golden_path("models/qwen-vl"));
  for (const auto& name : whole.names())
    if (name.find("visual.") == std::string::npos) tensors[name] = whole.view(name);
  write_safetensors(scratch.path() / "model.safetensors", tensors);
  const auto model = load_model(scratch.path());
  EXPECT_FALSE(model->has_vision());
  for (const auto& prompt : golden.generate("generate"))
    if (prompt.images.empty()) {
      EXPECT_EQ(greedy(*model, golden, {prompt}, read_stop_ids(golden_path("models/qwen-vl")))[0], prompt.tokens);
    }
}

TEST(FirstQwenVlConfig, ErrorsNameTheKey) {
  const auto read = [](const std::string& config) {
    const Scratch scratch;
    write_file_atomic(scratch.path() / "config.json", "{\"model_type\":\"qwen\"," + config + "}");
    return read_vlm_config(scratch.path(), std::nullopt, {});
  };
  const std::pair<std::string, const char*> wrong[] = {
      {R"("rotary_pct":0.5)", "/rotary_pct"},
      {R"("no_bias":false)", "/no_bias"},
      {R"("kv_channels":7)", "/kv_channels"},
      {R"("seq_length":0)", "/seq_length"},
      {R"("visual":{"output_dim":1024})", "/visual/output_dim"},
      {R"("visual":{"output_dim":1000})", "/visual/output_dim"},
      {R"("visual":{"heads":7})", "/visual/heads"},
      {R"("visual":{"n_queries":10})", "/visual/n_queries"},
      {R"("visual":{"patch_size":500})", "/visual/patch_size"},
  };
  for (const auto& [config, place] : wrong)
    EXPECT_THAT(message_of([&, config = config] { read(config); }), testing::HasSubstr(place)) << config;
  const auto published = read(R"("visual":{"image_start_id":151857})");
  EXPECT_EQ(published.image_token_id, 151859);
  EXPECT_EQ(published.text.intermediate_size, 11008);
  EXPECT_EQ(published.vision->tower_shape({}), (std::vector<int64_t>{1, 1024, 1664}));
}

}  // namespace
}  // namespace vlmtune::test
