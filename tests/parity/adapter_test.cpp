// LoRA adapters against PEFT: values, gradients, merged weights, files written and read again, files that must be refused.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lib/models/export.h"
#include "lib/models/llava/original.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

using testing::HasSubstr;

std::string without_prefix(const std::string& name, PartKind kind) {
  constexpr std::string_view kPrefix = "base_model.model.";
  return canonical_tensor_name(name.substr(kPrefix.size()), kind);
}

std::unique_ptr<VlmModel> with_adapter(const std::string& base, const fs::path& dir) {
  auto model = load_model(golden_path("models/" + base));
  load_adapter(*model, dir);
  return model;
}

class Adapter : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string("adapters/") + GetParam(); }
  Golden golden_{folder()};
  std::string base_ = golden_.text("base");
  Golden inputs_{"models/" + base_};
};

TEST_P(Adapter, LogitsLossAndGradients) {
  auto model = load_model(golden_path("models/" + base_));
  const auto config = load_adapter(*model, golden_path(folder()));
  model->visit([&](const std::string& name, Tensor& tensor) {
    const bool trained = name.find(".lora_") != std::string::npos || config.saves(name.substr(0, name.rfind('.')));
    tensor.requires_grad_(trained);
  });
  const auto batch = read_batch(inputs_, model->config());
  expect_logits(forward_logits(*model, batch), golden_, batch);
  std::map<std::string, Tensor> plain, again;
  EXPECT_NEAR(forward_loss(*model, batch, &plain), golden_.number("loss"), kLossTolerance * golden_.number("loss"));
  expect_gradients(plain, golden_,
                   [&](const std::string& name) { return without_prefix(name, model->config().whole()); });
  // The base is frozen, so a recomputed block gets its gradient through its input alone.
  forward_loss(*model, batch, &again, {.training = true, .language_checkpointing = true, .vision_checkpointing = true});
  for (const auto& [name, gradient] : plain)
    if (gradient.defined()) {
      EXPECT_TRUE(torch::equal(gradient, again.at(name))) << name;
    }
}

TEST_P(Adapter, MergedWeights) {
  const auto model = with_adapter(base_, golden_path(folder()));
  merge_adapter(*model);
  std::map<std::string, Tensor> tensors;
  model->visit([&](const std::string& name, Tensor& tensor) { tensors[name] = tensor; });
  size_t compared = 0;
  for (const auto& name : golden_.names("merged.")) {
    const auto found = tensors.find(canonical_tensor_name(name, model->config().whole()));
    if (found == tensors.end()) {
      EXPECT_TRUE(name.starts_with("vision_tower.encoder.layers.2."))
          << name;  // behind the selected state: never loaded
      continue;
    }
    EXPECT_LE(difference(found->second, golden_.tensor("merged." + name)), 1e-6) << name;
    ++compared;
  }
  EXPECT_GT(compared, 0U);
  const auto batch = read_batch(inputs_, model->config());
  expect_logits(forward_logits(*model, batch), golden_, batch);
}

TEST_P(Adapter, WrittenMergedModelReadsAgain) {
  const auto dir = golden_path("models/" + base_);
  const auto model = with_adapter(base_, golden_path(folder()));
  merge_adapter(*model);
  const WrittenFolder folder("merged", GetParam());
  fs::copy_file(dir / "config.json", folder.path() / "config.json", fs::copy_options::overwrite_existing);
  export_weights(*model, {{Checkpoint::open(dir), model->config().whole()}}, folder.path(), torch::kFloat, 0);
  const auto batch = read_batch(inputs_, model->config());
  EXPECT_TRUE(torch::equal(forward_logits(*load_model(folder.path()), batch), forward_logits(*model, batch)));
}

TEST_P(Adapter, WrittenFilesReadAgain) {
  auto model = load_model(golden_path("models/" + base_));
  const auto config = load_adapter(*model, golden_path(folder()));
  const WrittenFolder folder("adapters", GetParam());
  save_adapter(*model, config, folder.path());
  const auto again = with_adapter(base_, folder.path());
  std::map<std::string, Tensor> tensors;
  again->visit([&](const std::string& name, Tensor& tensor) { tensors[name] = tensor; });
  size_t count = 0;
  model->visit([&](const std::string& name, Tensor& tensor) {
    EXPECT_TRUE(torch::equal(tensor, tensors.at(name))) << name;
    ++count;
  });
  EXPECT_EQ(count, tensors.size());
  const auto batch = read_batch(inputs_, model->config());
  EXPECT_TRUE(torch::equal(forward_logits(*again, batch), forward_logits(*model, batch)));
  // Name by name what PEFT wrote, but for layers that this model never runs.
  if (std::string(GetParam()).ends_with("-old")) return;
  const auto ours = Checkpoint::open_file(folder.path() / "adapter_model.safetensors");
  const auto theirs = Checkpoint::open_file(golden_path(this->folder()) / "adapter_model.safetensors");
  for (const auto& name : ours.names()) EXPECT_TRUE(theirs.has(name)) << name;
  for (const auto& name : theirs.names())
    if (name.find("vision_tower.encoder.layers.2.") == std::string::npos) {
      EXPECT_TRUE(ours.has(name)) << name;
    }
}

/// A language model, LLaVA's own LoRA folder and the tower that its config.json names.
std::unique_ptr<VlmModel> with_original_adapter(const fs::path& adapter) {
  const auto folder = golden_path("adapters/llava-original");
  const auto tower = original_llava_tower(folder);
  auto config = read_vlm_config(folder, std::nullopt, {});
  config.image_token_id = 132;
  auto model = std::make_unique<VlmModel>(config);
  auto options = train_everything();
  options.fresh = [&](const std::string& name, torch::IntArrayRef shape) {
    return fresh_projector_tensor(name, shape, 1, config);
  };
  load_weights(*model,
               {{Checkpoint::open(golden_path("models/llava-original-language")), PartKind::kLanguageModel},
                {Checkpoint::open(tower.value()), PartKind::kVisionTower}},
               options);
  load_adapter(*model, adapter);
  return model;
}

TEST(OriginalAdapter, IsTheSameAdapter) {
  const auto folder = golden_path("adapters/llava-original");
  const Golden golden("adapters/llava-original");
  const Golden inputs("models/" + golden.text("base"));
  const auto model = with_original_adapter(folder);
  const auto batch = read_batch(inputs, model->config());
  expect_logits(forward_logits(*model, batch), golden, batch);
  const WrittenFolder written("adapters-original", "llava-original");
  auto config = load_adapter(*model, folder);
  save_adapter(*model, config, written.path());
  EXPECT_TRUE(
      torch::equal(forward_logits(*with_original_adapter(written.path()), batch), forward_logits(*model, batch)));
  for (const char* file : {"adapter_model", "non_lora_trainables"}) {
    const auto ours = written.path() / (file + std::string(file[0] == 'a' ? ".safetensors" : ".bin"));
    EXPECT_EQ(Checkpoint::open_file(ours).names(),
              Checkpoint::open_file(folder / (file + std::string(".bin"))).names());
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Adapter,
                         testing::Values("list", "regex-projector", "regex-projector-old", "patterns", "rslora", "head",
                                         "embeddings-and-head", "all-linear", "vision", "layers", "siglip-qwen2",
                                         "qwen2-vl", "qwen2-vl-vision", "qwen2.5-vl", "qwen3-vl", "qwen-vl",
                                         "qwen-vl-vision", "text"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

/// A copy of the adapter `regex-projector` to be damaged.
class DamagedAdapter : public testing::Test {
 protected:
  DamagedAdapter() {
    const auto source = golden_path("adapters/regex-projector");
    const auto file = Checkpoint::open_file(source / "adapter_model.safetensors");
    for (const auto& name : file.names()) tensors_[name] = file.view(name).clone();
    config_ = nlohmann::json::parse(read_file(source / "adapter_config.json"));
  }
  std::string load_error() {
    write_safetensors(scratch_.path() / "adapter_model.safetensors", tensors_);
    write_file_atomic(scratch_.path() / "adapter_config.json", config_.dump());
    return message_of([&] { with_adapter("llava-clip-llama", scratch_.path()); });
  }
  std::string first(const std::string& part) const {
    for (const auto& [name, tensor] : tensors_)
      if (name.find(part) != std::string::npos) return name;
    return "";
  }
  Scratch scratch_;
  std::map<std::string, Tensor> tensors_;
  nlohmann::json config_;
};

TEST_F(DamagedAdapter, LoadsUnchanged) { EXPECT_EQ(load_error(), "no error"); }

TEST_F(DamagedAdapter, NamesMissingTensors) {
  for (const char* part : {"lora_A", "lora_B", "linear_1.bias"}) {
    const auto name = first(part);
    const auto tensor = tensors_.extract(name);
    EXPECT_THAT(load_error(),
                testing::AllOf(HasSubstr("adapter_model.safetensors"), HasSubstr(name), HasSubstr("missing")));
    tensors_[name] = tensor.mapped();
  }
}

TEST_F(DamagedAdapter, NamesUnknownTensors) {
  for (const char* name :
       {"base_model.model.model.language_model.layers.9.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.language_model.layers.0.mlp.up_proj.lora_A.weight",
        "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_magnitude_vector", "stray"}) {
    tensors_[name] = torch::ones({2});
    EXPECT_THAT(load_error(), HasSubstr(name));
    tensors_.erase(name);
  }
}

TEST_F(DamagedAdapter, NamesWrongShapes) {
  const auto name = first("lora_B");
  tensors_[name] = tensors_[name].narrow(1, 0, 1).clone();
  EXPECT_THAT(load_error(), testing::AllOf(HasSubstr(name), HasSubstr("shape")));
}

TEST_F(DamagedAdapter, RefusesEmptyFiles) {  // what a crashed gather leaves behind: a header and no tensor
  tensors_.clear();
  EXPECT_THAT(load_error(), HasSubstr("adapter_model.safetensors"));
  config_["target_modules"] = nullptr;
  config_["modules_to_save"] = nullptr;
  EXPECT_THAT(load_error(), HasSubstr("no tensor"));
}

TEST_F(DamagedAdapter, RefusesWhatIsNotLora) {
  const auto original = config_;
  const std::pair<const char*, nlohmann::json> wrong[] = {{"use_dora", true},
                                                          {"peft_type", "LOHA"},
                                                          {"bias", "all"},
                                                          {"fan_in_fan_out", true},
                                                          {"lora_bias", true},
                                                          {"r", 0},
                                                          {"r", "8"},
                                                          {"layer_replication", {{0, 1}}},
                                                          {"target_modules", 5},
                                                          {"target_modules", "("},
                                                          {"exclude_modules", "["},
                                                          {"rank_pattern", {{"(", 2}}},
                                                          {"rank_pattern", {{"q_proj", 0}}},
                                                          {"alpha_pattern", {{"q_proj", "2"}}},
                                                          {"target_modules", "no_such_layer"}};
  for (const auto& [key, value] : wrong) {
    config_ = original;
    config_[key] = value;
    SCOPED_TRACE(fmt::format("{} {}", key, value.dump()));
    EXPECT_THAT(load_error(), testing::AnyOf(HasSubstr(fmt::format("/{}", key)), HasSubstr("lora")));
  }
  EXPECT_THAT(message_of([&] { with_adapter("llava-clip-llama", golden_path("adapters/dora")); }),
              HasSubstr("/use_dora"));
  EXPECT_THAT(message_of([&] { with_adapter("llama", golden_path("adapters/list")); }),
              HasSubstr("list/adapter_model.safetensors"));
  EXPECT_THAT(message_of([&] { with_adapter("llama", scratch_.path() / "absent"); }), HasSubstr("absent"));
}

TEST(AdapterConfig, PatternsAreTriedInTheirOrder) {
  const Scratch scratch;
  write_file_atomic(scratch.path() / "adapter_config.json",
                    R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["q_proj"],
                        "rank_pattern":{"self_attn.q_proj":16,"q_proj":2},"alpha_pattern":{"layers\\.1\\..*":3,".*proj":5}})");
  const auto config = read_adapter_config(scratch.path());
  EXPECT_EQ(config.rank_of("model.layers.0.self_attn.q_proj"), 16)
      << "the first that matches, as in PEFT, not the first by name";
  EXPECT_EQ(config.rank_of("model.layers.0.cross.q_proj"), 2);
  EXPECT_EQ(config.rank_of("model.layers.0.cross.xq_proj"), 4);
  EXPECT_EQ(config.scale_of("model.layers.1.self_attn.q_proj"), 3.0 / 16);
  EXPECT_EQ(config.scale_of("model.layers.0.self_attn.q_proj"), 5.0 / 16);
  write_adapter_config(config, scratch.path());
  EXPECT_EQ(read_adapter_config(scratch.path()).rank_pattern, config.rank_pattern);
}

TEST(AdapterConfig, TargetsAsPeftDoes) {
  AdapterConfig config;
  config.target_modules.names = {"q_proj", "linear_1"};
  EXPECT_TRUE(config.targets("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(config.targets("q_proj"));
  EXPECT_FALSE(config.targets("model.layers.0.self_attn.xq_proj")) << "an ending of the name, at a dot";
  config.modules_to_save = {"multi_modal_projector"};
  EXPECT_FALSE(config.targets("model.multi_modal_projector.linear_1")) << "a saved module is no target";
  EXPECT_TRUE(config.saves("model.multi_modal_projector.linear_1"));
  config.exclude_modules.regex = ".*vision_tower.*";
  EXPECT_FALSE(config.targets("model.vision_tower.encoder.layers.0.self_attn.q_proj"));
  config.layers_to_transform = {1};
  EXPECT_FALSE(config.targets("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(config.targets("model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(config.targets("model.layers.11.self_attn.q_proj"));
}

TEST(Attach, FreshAdaptersChangeNothingAndDependOnTheSeed) {
  const Golden golden("models/llava-clip-llama");
  AdapterConfig config;
  config.target_modules.names = {"q_proj", "down_proj"};
  std::map<int64_t, std::map<std::string, Tensor>> made;
  for (const int64_t seed : {1, 2}) {
    auto model = load_model(golden_path("models/llava-clip-llama"));
    const auto batch = read_batch(golden, model->config());
    const auto names = attach_lora(*model, config, seed);
    EXPECT_EQ(names.size(), 6U);  // two layers of the tower, two of the language model with two each
    EXPECT_EQ(forward_loss(*model, batch, nullptr),
              forward_loss(*load_model(golden_path("models/llava-clip-llama")), batch, nullptr));
    model->visit([&](const std::string& name, Tensor& tensor) {
      if (name.find(".lora_") != std::string::npos) made[seed][name] = tensor;
    });
  }
  for (const auto& [name, a] : made[1]) {
    if (name.find("lora_B") != std::string::npos) {
      EXPECT_EQ(a.count_nonzero().item<int64_t>(), 0);
      continue;
    }
    EXPECT_FALSE(torch::equal(a, made[2].at(name)));
    EXPECT_LE(a.abs().max().item<double>(), 1 / std::sqrt(static_cast<double>(a.size(1))))
        << "kaiming_uniform with sqrt(5)";
  }
  auto model = load_model(golden_path("models/llama"));
  config.target_modules.names = {"absent"};
  EXPECT_THROW(attach_lora(*model, config, 1), UserError);
}

TEST(SavedHead, OfATiedModel) {
  // The head is the embedding: a saved head of its own would be another model.
  auto model = load_model(golden_path("models/qwen2"));
  AdapterConfig config;
  config.target_modules.names = {"q_proj"};
  config.modules_to_save = {"lm_head"};
  attach_lora(*model, config, 1);
  const Scratch scratch;
  save_adapter(*model, config, scratch.path());
  EXPECT_EQ(message_of([&] { with_adapter("qwen2", scratch.path()); }), "no error");
  const auto file = scratch.path() / "adapter_model.safetensors";
  std::map<std::string, Tensor> tensors;
  {
    const auto checkpoint = Checkpoint::open_file(file);
    for (const auto& name : checkpoint.names()) tensors[name] = checkpoint.view(name).clone();
  }
  tensors.at("base_model.model.lm_head.weight") += 1;
  write_safetensors(file, tensors);
  EXPECT_THAT(message_of([&] { with_adapter("qwen2", scratch.path()); }), HasSubstr("base_model.model.lm_head.weight"));
}

}  // namespace
}  // namespace vlmtune::test
