// Vision towers and whole models of every family against transformers: features, logits, losses, gradients, tokens.
#include <iostream>

#include "lib/models/config_reader.h"
#include "lib/models/export.h"
#include "lib/models/llava/config.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

std::string canonical(const std::string& name) { return canonical_tensor_name(name, PartKind::kWhole); }

class Tower : public testing::TestWithParam<const char*> {};

TEST_P(Tower, HiddenStates) {
  const auto dir = golden_path(std::string("models/") + GetParam());
  const Golden golden(std::string("models/") + GetParam());
  // The tower of a model whose language model is another golden.
  auto config =
      read_vlm_config(golden_path("models/llama"), dir, {.projector_type = "linear", .vision_select_layer = -1});
  VlmModel model(config);
  WeightOptions options;
  options.fresh = [&](const std::string& name, torch::IntArrayRef shape) {
    return fresh_projector_tensor(name, shape, 1, config);
  };
  load_weights(model,
               {{Checkpoint::open(golden_path("models/llama")), PartKind::kLanguageModel},
                {Checkpoint::open(dir), PartKind::kVisionTower}},
               options);
  const auto& tower_config = *llava_vision(config).tower;
  const auto tower = tower_config.build(tower_config.last_state());
  std::map<std::string, Tensor> loaded;
  model.visit([&](const std::string& name, Tensor& tensor) { loaded[name] = tensor; });
  tower->visit("model.vision_tower.", [&](const std::string& name, Tensor& slot) { slot = loaded.at(name); });
  const auto states = tower->hidden_states(golden.tensor("pixel_values"), {0, 1, 2, 3}, false, false);
  for (size_t i = 0; i < states.size(); ++i)
    expect_close(states[i], golden.tensor("hidden_states." + std::to_string(i)), 1e-5,
                 "hidden state " + std::to_string(i));
}
INSTANTIATE_TEST_SUITE_P(Goldens, Tower, testing::Values("clip-vision", "siglip-vision", "clip-full"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

class Family : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string("models/") + GetParam(); }
  Golden golden_{folder()};
};

TEST_P(Family, FeaturesLogitsLossAndGradients) {
  const auto model = load_model(golden_path(folder()), train_everything());
  const auto batch = read_batch(golden_, model->config());
  const auto features = model->encode_images(batch.images, torch::kFloat, {});
  const auto counts = golden_.integers("image_tokens");
  for (size_t i = 0; i < batch.images.shapes.size(); ++i)
    EXPECT_EQ(model->config().vision->image_tokens(batch.images.shapes[i]),
              counts.size() == 1 ? counts[0] : counts.at(i));
  expect_close(features.tokens, golden_.tensor("image_features"), 1e-5, "image_features");
  expect_logits(forward_logits(*model, batch), golden_, batch);
  std::map<std::string, Tensor> gradients;
  EXPECT_NEAR(forward_loss(*model, batch, &gradients), golden_.number("loss"), kLossTolerance * golden_.number("loss"));
  expect_gradients(gradients, golden_, canonical);
}

TEST_P(Family, GreedyTokens) {
  const auto model = load_model(golden_path(folder()));
  const auto prompts = golden_.generate("generate");
  const auto stop_ids = read_stop_ids(golden_path(folder()));
  for (const auto& prompt : prompts) EXPECT_EQ(greedy(*model, golden_, {prompt}, stop_ids)[0], prompt.tokens);
  const auto together = greedy(*model, golden_, prompts, stop_ids);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(together[i], prompts[i].tokens) << i << " of a batch";
}

TEST_P(Family, WrittenModelReadsAgain) {
  const auto dir = golden_path(folder());
  const auto model = load_model(dir);
  const WrittenFolder folder("models", GetParam());
  fs::copy_file(dir / "config.json", folder.path() / "config.json", fs::copy_options::overwrite_existing);
  export_weights(*model, {{Checkpoint::open(dir), PartKind::kWhole}}, folder.path(), torch::kFloat, 0);
  std::map<std::string, Tensor> written;
  for (const auto& checkpoint = Checkpoint::open(folder.path()); const auto& name : checkpoint.names())
    written[canonical(name)] = checkpoint.view(name);
  for (const auto& checkpoint = Checkpoint::open(dir); const auto& name : checkpoint.names()) {
    ASSERT_TRUE(written.contains(canonical(name))) << name;  // the layers that are never run come along
    EXPECT_TRUE(torch::equal(written.at(canonical(name)), checkpoint.view(name))) << name;
  }
  const auto batch = read_batch(golden_, model->config());
  EXPECT_TRUE(torch::equal(forward_logits(*load_model(folder.path()), batch), forward_logits(*model, batch)));
}

TEST_P(Family, CheckpointingGivesTheSameBits) {
  const auto model = load_model(golden_path(folder()), train_everything());
  const auto batch = read_batch(golden_, model->config());
  std::map<std::string, Tensor> plain;
  const double loss = forward_loss(*model, batch, &plain);
  for (const char* policy : {"full", "selective", "selective:attention", "every:2", "first:1"}) {
    std::map<std::string, Tensor> again;
    const auto recompute = RecomputePolicy::parse(policy);
    const double same =
        forward_loss(*model, batch, &again,
                     {.training = true, .language_checkpointing = recompute, .vision_checkpointing = recompute});
    EXPECT_EQ(loss, same) << policy;
    for (const auto& [name, gradient] : plain) {
      ASSERT_EQ(gradient.defined(), again.at(name).defined()) << name;
      if (gradient.defined()) {
        EXPECT_TRUE(torch::equal(gradient, again.at(name))) << policy << ": " << name;
      }
    }
  }
}

TEST_P(Family, ChunkedLossIsTheLoss) {
  const auto model = load_model(golden_path(folder()), train_everything());
  const auto batch = read_batch(golden_, model->config());
  for (const int64_t chunk : {1, 5, 1000}) {
    std::map<std::string, Tensor> gradients;
    EXPECT_NEAR(forward_loss(*model, batch, &gradients, {}, chunk), golden_.number("loss"),
                kLossTolerance * golden_.number("loss"));
    expect_gradients(gradients, golden_, canonical);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Family,
                         testing::Values("llava-onevision-siglip-qwen2", "llava-clip-llama", "llava-siglip-qwen2",
                                         "llava-layers-mistral", "llava-layers-default", "llava-next-clip-mistral",
                                         "llava-next-siglip-qwen2", "qwen2-vl", "qwen2-vl-tied", "qwen2.5-vl",
                                         "qwen3-vl", "qwen-vl"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

class Stage1 : public testing::TestWithParam<const char*> {};

TEST_P(Stage1, ProjectorBetweenParts) {
  const Golden golden(std::string("models/") + GetParam());
  const auto file = golden_path(std::string("models/") + GetParam()) / "mm_projector.safetensors";
  const auto language = golden_path("models/" + golden.text("language_model")),
             vision = golden_path("models/" + golden.text("vision_tower"));
  const bool linear = std::string(GetParam()) == "stage1-linear";
  auto config = read_vlm_config(language, vision,
                                {.projector_type = linear ? "linear" : "mlp2x_gelu", .vision_select_layer = {}});
  EXPECT_FALSE(llava_vision(config).keep_class_token);
  config.image_token_id = -200;
  VlmModel model(config);
  WeightOptions options;
  options.is_trained = [](const std::string& name) { return name.starts_with("model.multi_modal_projector."); };
  load_weights(model,
               {{Checkpoint::open(language), PartKind::kLanguageModel},
                {Checkpoint::open(vision), PartKind::kVisionTower},
                {Checkpoint::open_file(file), PartKind::kProjector}},
               options);
  model.visit([&](const std::string& name, Tensor& tensor) { tensor.requires_grad_(options.is_trained(name)); });
  const auto batch = read_batch(golden, config);
  expect_logits(forward_logits(model, batch), golden, batch);
  for (const bool checkpointing : {false, true}) {
    std::map<std::string, Tensor> gradients;
    const double loss =
        forward_loss(model, batch, &gradients, {.training = true, .language_checkpointing = checkpointing});
    EXPECT_NEAR(loss, golden.number("loss"), kLossTolerance * golden.number("loss"));
    expect_gradients(gradients, golden,
                     [](const std::string& name) { return canonical_tensor_name(name, PartKind::kProjector); });
  }
}
INSTANTIATE_TEST_SUITE_P(Goldens, Stage1, testing::Values("stage1-linear", "stage1-mlp2x"), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

class Spelling : public testing::TestWithParam<const char*> {};

TEST_P(Spelling, IsTheSameModel) {
  const Golden golden(std::string("models/") + GetParam());
  const auto model = load_model(golden_path(std::string("models/") + GetParam()));
  const auto usual = load_model(golden_path("models/" + golden.source()));
  std::map<std::string, Tensor> tensors;
  usual->visit([&](const std::string& name, Tensor& tensor) { tensors[name] = tensor; });
  model->visit(
      [&](const std::string& name, Tensor& tensor) { EXPECT_TRUE(torch::equal(tensor, tensors.at(name))) << name; });
  const auto batch = read_batch(golden, model->config());
  expect_logits(forward_logits(*model, batch), golden, batch);
}
INSTANTIATE_TEST_SUITE_P(Goldens, Spelling,
                         testing::Values("llava-clip-llama-llava-hf", "llava-clip-llama-in-memory",
                                         "llava-clip-llama-in-memory-nested", "llava-clip-llama-sharded",
                                         "qwen2-vl-hub", "qwen2-vl-in-memory"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

/// Computed in 16 bits, logits lie about as far from those computed in fp32 as the reference's do.
TEST(HalfPrecision, WeightsComputedInFp32AndNatively) {
  const std::pair<std::string, torch::ScalarType> cases[] = {{"llava-clip-llama-bf16", torch::kBFloat16},
                                                             {"llava-clip-llama-fp16", torch::kHalf},
                                                             {"qwen2-vl-bf16", torch::kBFloat16},
                                                             {"qwen2.5-vl-bf16", torch::kBFloat16},
                                                             {"qwen3-vl-bf16", torch::kBFloat16}};
  for (const auto& [name, type] : cases) {
    SCOPED_TRACE(name);
    const Golden golden("models/" + name);
    const auto dir = golden_path("models/" + name);
    const auto batch = read_batch(Golden("models/" + golden.text("inputs")), read_vlm_config(dir, std::nullopt, {}));
    expect_logits(forward_logits(*load_model(dir), batch), golden, batch);
    WeightOptions native;
    native.frozen_type = type;
    const auto model = load_model(dir, native);
    model->visit([&, type = type](const std::string&, Tensor& tensor) { EXPECT_EQ(tensor.scalar_type(), type); });
    const auto logits = forward_logits(*model, batch, type);
    EXPECT_EQ(logits.scalar_type(), type);
    const auto error = [&](const Tensor& found) {
      return (found - golden.tensor("logits")).square().mean().sqrt().item<double>();
    };
    const double ours = error(logits.to(torch::kFloat) * batch.mask.unsqueeze(-1)),
                 reference = error(golden.tensor("logits_native"));
    EXPECT_LE(ours, 1.25 * reference);
    std::cout << fmt::format("{:>10.2e}  native logits' error, the reference's is {:.2e}\n", ours, reference);
    // The same weights, computed in fp32 as they lie in the mapped file.
    expect_logits(forward_logits(*model, batch, torch::kFloat), golden, batch);
  }
}

TEST(VlmModel, SlotsAndFeaturesMustMatch) {
  const Golden golden("models/llava-clip-llama");
  const auto model = load_model(golden_path("models/llava-clip-llama"));
  auto batch = read_batch(golden, model->config());
  auto fewer = batch;
  fewer.images = read_images(golden, model->config(), {0, 1});
  EXPECT_THROW(forward_logits(*model, fewer), InternalError);
  fewer.images = {};
  EXPECT_THROW(forward_logits(*model, fewer), InternalError);
}

TEST(VlmConfig, ErrorsNameTheKey) {
  const auto read = [](const std::string& config) {
    const Scratch scratch;
    write_file_atomic(scratch.path() / "config.json", config);
    return read_vlm_config(scratch.path(), std::nullopt, {});
  };
  const std::string text = R"("text_config":{"hidden_size":32,"num_attention_heads":4})";
  const std::pair<std::string, const char*> wrong[] = {
      {"[]", "config.json"},
      {R"({"model_type":"blip"})", "/model_type"},
      {R"({"model_type":"llava","vision_feature_layer":-30,)" + text + "}", "/vision_feature_layer"},
      {R"({"model_type":"llava","vision_feature_layer":[],)" + text + "}", "/vision_feature_layer"},
      {R"({"model_type":"llava","vision_feature_select_strategy":"cls",)" + text + "}",
       "/vision_feature_select_strategy"},
      {R"({"model_type":"llava","vision_config":{"model_type":"vit"},)" + text + "}", "/vision_config/model_type"},
      {R"({"model_type":"llava","vision_config":{"hidden_size":30},)" + text + "}",
       "/vision_config/num_attention_heads"},
      {R"({"model_type":"llava","projector_hidden_act":"mish",)" + text + "}", "/projector_hidden_act"},
      {R"({"model_type":"llava_next","image_grid_pinpoints":[[336]],)" + text + "}", "/image_grid_pinpoints"},
      // The grid of a tile needs as many features as patches.
      {R"({"model_type":"llava_next","vision_feature_select_strategy":"full",)" + text + "}",
       "/vision_feature_select_strategy"},
  };
  for (const auto& [config, place] : wrong)
    EXPECT_THAT(message_of([&, config = config] { read(config); }), testing::HasSubstr(place)) << config;
  const auto tower_of_siglip = read_vlm_config(golden_path("models/llama"), golden_path("models/siglip-vision"), {});
  EXPECT_TRUE(llava_vision(tower_of_siglip).keep_class_token) << "SigLIP has no class token to drop";
  EXPECT_THROW(read_vlm_config(golden_path("models/llama"), golden_path("models/clip-vision"),
                               {.projector_type = "mlp0x_gelu", .vision_select_layer = {}}),
               UserError);
}

}  // namespace
}  // namespace vlmtune::test
