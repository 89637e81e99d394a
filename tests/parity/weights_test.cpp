// What load_weights makes of folders that do not fit the model, and of ones that fit in an unusual way.
#include <fstream>
#include <iostream>

#include "lib/base/log.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A copy of a golden model whose tensors can be changed before it is loaded.
class Folder : public testing::Test {
 protected:
  void read(const std::string& name) {
    const auto dir = golden_path("models/" + name);
    const auto checkpoint = Checkpoint::open(dir);
    tensors_.clear();
    for (const auto& tensor : checkpoint.names()) tensors_[tensor] = checkpoint.view(tensor).clone();
    fs::copy_file(dir / "config.json", scratch_.path() / "config.json", fs::copy_options::overwrite_existing);
  }
  std::unique_ptr<VlmModel> load(const WeightOptions& options = {}) {
    write_safetensors(scratch_.path() / "model.safetensors", tensors_);
    return load_model(scratch_.path(), options);
  }
  std::string load_error() {
    return message_of([&] { load(); });
  }
  /// What is logged while loading.
  std::string load_log() {
    const auto log = scratch_.path() / "log";
    open_log_file(log);
    load();
    open_log_file("");
    return read_file(log);
  }
  Scratch scratch_;
  std::map<std::string, Tensor> tensors_;
};

TEST_F(Folder, NamesTheTensorThatDoesNotFit) {
  const struct {
    const char *model, *name;
    std::optional<Tensor> value;  // none: the tensor is taken away
    const char* message;
  } cases[] = {
      {"llama", "model.norm.weight", {}, "missing"},
      {"llama", "lm_head.weight", {}, "missing"},
      {"llama", "model.layers.1.mlp.up_proj.bias", {}, "missing"},
      {"llama", "model.layers.2.mlp.up_proj.weight", torch::ones({52, 32}), "not part of the model"},
      {"llama", "model.layers.0.self_attn.q_norm.weight", torch::ones({12}), "not part of the model"},
      {"llama", "model.embed_tokens.weight", torch::ones({141, 32}), "[141, 32]"},
      {"llama", "model.norm.weight", torch::ones({1, 32}), "[1, 32]"},
      {"llama", "model.norm.weight", torch::ones({32}, torch::kLong), "I64"},
      {"llama", "model.norm.weight", torch::ones({32}).to(torch::kFloat8_e4m3fn), "F8_E4M3"},
      {"llava-clip-llama", "multi_modal_projector.linear_2.bias", {}, "missing"},
      {"llava-clip-llama", "image_newline", torch::ones({32}), "not part of the model"},
      {"llava-clip-llama", "vision_tower.encoder.layers.1.mlp.fc1.bias", {}, "missing"},
      {"llava-clip-llama", "vision_tower.encoder.layers.x.mlp.fc1.bias", torch::ones({40}), "not part of the model"},
      {"llava-clip-llama", "model.language_model.norm.weight", torch::ones({32}), "means the same"},
      {"llava-next-clip-mistral", "image_newline", {}, "missing"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("{} {}", c.model, c.name));
    read(c.model);
    if (c.value) {
      tensors_[c.name] = *c.value;
    } else {
      ASSERT_EQ(tensors_.erase(c.name), 1U);
    }
    const std::string plain = c.name, last = plain.substr(plain.find("layers.") == std::string::npos
                                                              ? plain.rfind('.', plain.rfind('.') - 1) + 1
                                                              : plain.find("layers."));
    EXPECT_THAT(load_error(), AllOf(HasSubstr(scratch_.path().string()), HasSubstr(last), HasSubstr(c.message)));
  }
}

TEST_F(Folder, LeavesOutWhatIsNeverRun) {
  read("llava-clip-llama");  // feature layer -2: the last block and the last norm are never run
  for (const char* name : {"vision_tower.encoder.layers.2.mlp.fc1.bias", "vision_tower.post_layernorm.weight"})
    ASSERT_EQ(tensors_.erase(name), 1U);
  tensors_["vision_tower.vision_model.embeddings.position_ids"] = torch::arange(17);
  tensors_["language_model.model.layers.0.self_attn.rotary_emb.inv_freq"] = torch::ones({4});
  EXPECT_EQ(load_error(), "no error");
}

TEST_F(Folder, TiedHeadInTheFile) {
  read("qwen2");
  const auto embedding = tensors_.at("model.embed_tokens.weight");
  tensors_["lm_head.weight"] = embedding.clone();
  EXPECT_THAT(load_log(), testing::Not(HasSubstr("lm_head")));
  tensors_["lm_head.weight"] = embedding + 1;
  EXPECT_THAT(load_log(), HasSubstr("lm_head.weight differs"));
  const auto model = load();
  EXPECT_TRUE(model->head_weight().is_same(model->language_model().embed_tokens))
      << "one tensor, trained and counted once";
  EXPECT_TRUE(torch::equal(model->head_weight(), embedding));
}

TEST_F(Folder, FrozenTensorsAreUsedFromTheFileAndTrainedOnesAreCopies) {
  read("llama");
  WeightOptions options;
  options.is_trained = [](const std::string& name) { return name.ends_with("q_proj.weight"); };
  const auto model = load(options);
  model->visit([&](const std::string& name, Tensor& tensor) {
    EXPECT_TRUE(torch::equal(tensor, tensors_.at(name)));
    const torch::NoGradGuard no_grad;
    if (options.is_trained(name)) tensor.add_(1);  // the mapped file is read-only: writing to it would be a crash
  });
  EXPECT_TRUE(torch::equal(load(options)->language_model().embed_tokens, tensors_.at("model.embed_tokens.weight")));
}

TEST_F(Folder, TypesAreConverted) {
  read("llama");
  for (auto& [name, tensor] : tensors_) tensor = tensor.to(torch::kDouble);
  WeightOptions options;
  options.frozen_type = torch::kBFloat16;
  options.is_trained = [](const std::string& name) { return name == "lm_head.weight"; };
  const auto model = load(options);
  model->visit([&](const std::string& name, Tensor& tensor) {
    EXPECT_EQ(tensor.scalar_type(), name == "lm_head.weight" ? torch::kFloat : torch::kBFloat16) << name;
  });
}

TEST_F(Folder, ProjectorFilesInEverySpelling) {
  const auto config = read_vlm_config(golden_path("models/llama"), golden_path("models/clip-vision"), {});
  const auto own = Checkpoint::open_file(golden_path("models/stage1-mlp2x/mm_projector.safetensors"));
  for (const auto& [first, second] :
       {std::pair{"model.mm_projector.0.", "model.mm_projector.2."},
        {"mm_projector.0.", "mm_projector.2."},
        {"multi_modal_projector.linear_1.", "multi_modal_projector.linear_2."},
        {"model.multi_modal_projector.linear_1.", "model.multi_modal_projector.linear_2."}}) {
    SCOPED_TRACE(first);
    std::map<std::string, Tensor> projector;
    for (const char* kind : {"weight", "bias"}) {
      projector[std::string(first) + kind] = own.view(std::string("model.mm_projector.0.") + kind);
      projector[std::string(second) + kind] = own.view(std::string("model.mm_projector.2.") + kind);
    }
    const auto load = [&] {
      write_safetensors(scratch_.path() / "projector.safetensors", projector);
      VlmModel model(config);
      load_weights(model,
                   {{Checkpoint::open(golden_path("models/llama")), PartKind::kLanguageModel},
                    {Checkpoint::open(golden_path("models/clip-vision")), PartKind::kVisionTower},
                    {Checkpoint::open_file(scratch_.path() / "projector.safetensors"), PartKind::kProjector}},
                   {});
      model.visit([&](const std::string& name, Tensor& tensor) {
        if (name == "model.multi_modal_projector.linear_2.weight") {
          EXPECT_TRUE(torch::equal(tensor, own.view("model.mm_projector.2.weight")));
        }
      });
    };
    EXPECT_EQ(message_of(load), "no error");
    const auto taken = projector.extract(std::string(second) + "bias");
    EXPECT_THAT(message_of(load), AllOf(HasSubstr("linear_2.bias"), HasSubstr("missing")));
    projector.insert({taken.key(), taken.mapped()});
    projector["model.mm_projector.4.weight"] = torch::ones({32, 32});
    EXPECT_THAT(message_of(load), AllOf(HasSubstr("projector.safetensors"), HasSubstr("model.mm_projector.4.weight")));
  }
}

TEST(FreshProjector, DependsOnSeedAndNameAlone) {
  const auto config = read_vlm_config(golden_path("models/llama"), golden_path("models/clip-vision"), {});
  const auto make = [&](const char* name, int64_t seed) {
    return *fresh_projector_tensor(name, {32, 24}, seed, config);
  };
  constexpr const char* kFirst = "model.multi_modal_projector.linear_1.weight";
  EXPECT_TRUE(torch::equal(make(kFirst, 1), make(kFirst, 1)));
  EXPECT_FALSE(torch::equal(make(kFirst, 1), make(kFirst, 2)));
  EXPECT_FALSE(torch::equal(make(kFirst, 1), make("model.multi_modal_projector.linear_2.weight", 1)));
  EXPECT_NEAR(make(kFirst, 1).abs().max().item<double>(), 1 / std::sqrt(24.0), 0.01);
  EXPECT_FALSE(fresh_projector_tensor("lm_head.weight", {2, 2}, 1, config));
}

TEST(Names, EverySpellingBecomesOne) {
  const std::pair<const char*, const char*> whole[] = {
      {"language_model.model.layers.0.self_attn.q_proj.weight",
       "model.language_model.layers.0.self_attn.q_proj.weight"},
      {"model.language_model.layers.0.self_attn.q_proj.weight",
       "model.language_model.layers.0.self_attn.q_proj.weight"},
      {"model.language_model.model.norm.weight", "model.language_model.norm.weight"},
      {"language_model.lm_head.weight", "lm_head.weight"},
      {"model.language_model.lm_head.weight", "lm_head.weight"},
      {"lm_head.weight", "lm_head.weight"},
      {"vision_tower.vision_model.encoder.layers.1.mlp.fc1.bias", "model.vision_tower.encoder.layers.1.mlp.fc1.bias"},
      {"vision_tower.pre_layrnorm.weight", "model.vision_tower.pre_layrnorm.weight"},
      {"model.vision_tower.vision_model.post_layernorm.bias", "model.vision_tower.post_layernorm.bias"},
      {"multi_modal_projector.linear_1.weight", "model.multi_modal_projector.linear_1.weight"},
      {"image_newline", "model.image_newline"},
      {"model.image_newline", "model.image_newline"},
      {"model.embed_tokens.weight", "model.language_model.embed_tokens.weight"},
      {"model.layers.3.mlp.up_proj.weight", "model.language_model.layers.3.mlp.up_proj.weight"},
      {"model.norm.weight", "model.language_model.norm.weight"},
      {"visual.blocks.0.attn.qkv.bias", "model.visual.blocks.0.attn.qkv.bias"},
      {"model.visual.merger.mlp.2.weight", "model.visual.merger.mlp.2.weight"},
  };
  for (const auto& [from, to] : whole) {
    EXPECT_EQ(canonical_tensor_name(from, PartKind::kWhole), to);
    EXPECT_EQ(canonical_tensor_name(to, PartKind::kWhole), to) << "a normal form stays";
  }
  for (const char* name : {"model.embed_tokens.weight", "model.layers.3.mlp.up_proj.weight", "lm_head.weight"})
    EXPECT_EQ(canonical_tensor_name(name, PartKind::kBare), name);
  EXPECT_EQ(canonical_tensor_name("model.norm.weight", PartKind::kLanguageModel), "model.language_model.norm.weight");
  EXPECT_EQ(canonical_tensor_name("lm_head.weight", PartKind::kLanguageModel), "lm_head.weight");
  for (const char* name : {"pre_layrnorm.bias", "vision_model.pre_layrnorm.bias"})
    EXPECT_EQ(canonical_tensor_name(name, PartKind::kVisionTower), "model.vision_tower.pre_layrnorm.bias");
  EXPECT_EQ(canonical_tensor_name("text_model.final_layer_norm.bias", PartKind::kVisionTower),
            "text_model.final_layer_norm.bias");
  for (const char* name : {"model.mm_projector.weight", "mm_projector.weight"})
    EXPECT_EQ(canonical_tensor_name(name, PartKind::kProjector), "model.multi_modal_projector.linear_1.weight");
}

}  // namespace
}  // namespace vlmtune::test
