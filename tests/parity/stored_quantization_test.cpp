// Checkpoints in few bits: bitsandbytes' read and written, ours, and files that do not hold what they should.
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/files.h"
#include "lib/models/export.h"
#include "lib/models/stored_quantization.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

using Json = nlohmann::json;
using kernels::QuantType;
using testing::AllOf;
using testing::HasSubstr;

/// The values of the layer called `name`, as other programs make them whole.
Tensor whole(VlmModel& model, const std::string& name) {
  Tensor values;
  model.visit_linears([&](const std::string& module, Linear& linear) {
    if (module + ".weight" == name) values = kernels::dequantize(*linear.quantized, torch::kFloat);
  });
  return values;
}

size_t count_quantized(VlmModel& model) {
  size_t layers = 0;
  model.visit_linears([&](const std::string&, Linear& linear) { layers += linear.quantized ? 1 : 0; });
  return layers;
}

class StoredModel : public testing::TestWithParam<const char*> {};

TEST_P(StoredModel, GivesTheLogitsOfItsDequantisedSelf) {
  const auto dir = golden_path(std::string("models/") + GetParam());
  const Golden golden(std::string("models/") + GetParam()), base("models/" + golden.text("base"));
  const auto model = load_model(dir);
  const auto checkpoint = Checkpoint::open(dir);
  const auto stored = read_stored_quantization(dir);
  ASSERT_TRUE(stored.has_value());
  size_t layers = 0;
  model->visit_linears([&](const std::string& module, Linear& linear) {
    EXPECT_EQ(linear.quantized != nullptr, stored->applies(module)) << "config.json alone says so: " << module;
    layers += linear.quantized ? 1 : 0;
  });
  EXPECT_GT(layers, 10U);
  for (const auto& name : golden.names("values.")) {
    const auto expected = golden.tensor("values." + name);
    EXPECT_TRUE(torch::equal(whole(*model, name), expected)) << name;
  }
  const auto batch = read_batch(base, model->config());
  expect_close(forward_logits(*model, batch) * batch.mask.unsqueeze(-1), golden.tensor("logits"), kLogitsTolerance,
               "logits");
}

TEST_P(StoredModel, CodesStayInTheMappedFile) {
  const auto dir = golden_path(std::string("models/") + GetParam());
  const auto checkpoint = Checkpoint::open(dir);
  const auto model = std::make_unique<VlmModel>(read_vlm_config(dir, std::nullopt, {}));
  const std::vector<WeightSource> sources{{checkpoint, model->config().whole()}};
  load_weights(*model, sources, {});
  std::map<const void*, std::string> in_file;
  for (const auto& name : sources[0].checkpoint.names())
    in_file[sources[0].checkpoint.view(name).const_data_ptr()] = name;
  model->visit_linears([&](const std::string& module, Linear& linear) {
    if (!linear.quantized) return;
    EXPECT_TRUE(in_file.contains(linear.quantized->codes.const_data_ptr())) << module;
    EXPECT_TRUE(in_file.contains(linear.quantized->scales.const_data_ptr())) << module;
  });
}

TEST_P(StoredModel, TrainedLayersAreWhole) {
  auto options = train_everything();
  const auto model = load_model(golden_path(std::string("models/") + GetParam()), options);
  EXPECT_EQ(count_quantized(*model), 0U);
  const Golden golden(std::string("models/") + GetParam()), base("models/" + golden.text("base"));
  const auto batch = read_batch(base, model->config());
  std::map<std::string, Tensor> gradients;
  EXPECT_TRUE(std::isfinite(forward_loss(*model, batch, &gradients)));
  EXPECT_TRUE(gradients.contains("lm_head.weight"));
}

TEST_P(StoredModel, WrittenAgainIsTheSame) {
  const auto dir = golden_path(std::string("models/") + GetParam());
  const Golden golden(std::string("models/") + GetParam()), base("models/" + golden.text("base"));
  const auto model = load_model(dir);
  const WrittenFolder folder("quantized", GetParam());
  export_weights(*model, {{Checkpoint::open(dir), model->config().whole()}}, folder.path(), torch::kFloat, 0);
  fs::copy_file(dir / "config.json", folder.path() / "config.json");
  const auto config = Json::parse(quantization_config(*model, torch::kFloat));
  const auto original = Json::parse(read_file(dir / "config.json"))["quantization_config"];
  for (const char* key : {"quant_method", "load_in_4bit", "load_in_8bit", "bnb_4bit_use_double_quant"})
    EXPECT_EQ(config[key], original[key]) << key;
  const auto batch = read_batch(base, model->config());
  const auto again = load_model(folder.path());
  EXPECT_EQ(count_quantized(*again), count_quantized(*model));
  EXPECT_TRUE(torch::equal(forward_logits(*again, batch), forward_logits(*model, batch)));
  const auto ours = Checkpoint::open(folder.path()), theirs = Checkpoint::open(dir);
  std::map<std::string, std::string> spelt;  // as ours
  for (const auto& name : ours.names()) spelt[canonical_tensor_name(name, model->config().whole())] = name;
  for (const auto& name : theirs.names()) {
    if (name.ends_with(".weight_format")) continue;  // says what every reader takes for granted
    const auto at = spelt.find(canonical_tensor_name(name, model->config().whole()));
    ASSERT_NE(at, spelt.end()) << name;
    if (name.find(".quant_state.") != std::string::npos) continue;  // JSON, spaced otherwise
    EXPECT_TRUE(torch::equal(ours.view(at->second), theirs.view(name))) << name;
  }
}

TEST_P(StoredModel, MergedIsWhole) {
  const auto dir = golden_path(std::string("models/") + GetParam());
  const Golden golden(std::string("models/") + GetParam()), base("models/" + golden.text("base"));
  const auto model = load_model(dir);
  const auto batch = read_batch(base, model->config());
  const auto expected = forward_logits(*model, batch);
  merge_adapter(*model);
  EXPECT_EQ(quantization_config(*model, torch::kFloat), "");
  const Scratch folder;
  fs::copy_file(dir / "config.json", folder.path() / "config.json");
  export_weights(*model, {{Checkpoint::open(dir), model->config().whole()}}, folder.path(), torch::kFloat, 0);
  const auto checkpoint = Checkpoint::open(folder.path());
  for (const auto& name : checkpoint.names()) EXPECT_EQ(checkpoint.entry(name).dtype, "F32") << name;
  expect_close(forward_logits(*load_model(folder.path()), batch), expected, 1e-5, "logits");
}

INSTANTIATE_TEST_SUITE_P(Models, StoredModel,
                         testing::Values("llava-clip-llama-nf4", "llama-nf4", "llava-clip-llama-int8", "qwen2-vl-nf4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(OwnLayout, EveryTypeReadsAgain) {
  const auto dir = golden_path("models/llava-clip-llama");
  const Golden golden("models/llava-clip-llama");
  for (const auto type : {QuantType::kNf4, QuantType::kInt4, QuantType::kInt8})
    for (const bool double_quant : {false, true}) {
      SCOPED_TRACE(fmt::format("type {} double {}", static_cast<int>(type), double_quant));
      WeightOptions options;
      options.quantization = {[](const std::string& module) { return module.find("mlp.") != std::string::npos; }, type,
                              double_quant};
      const auto model = load_model(dir, options);
      const auto name = fmt::format("own-{}-{}", static_cast<int>(type), double_quant);
      const WrittenFolder folder("own", name);
      export_weights(*model, {{Checkpoint::open(dir), model->config().whole()}}, folder.path(), torch::kFloat, 0);
      auto config = Json::parse(read_file(dir / "config.json"));
      config["quantization_config"] = Json::parse(quantization_config(*model, torch::kFloat));
      write_file_atomic(folder.path() / "config.json", config.dump());
      const auto again = load_model(folder.path());
      const auto batch = read_batch(golden, model->config());
      EXPECT_TRUE(torch::equal(forward_logits(*again, batch), forward_logits(*model, batch)));
      const auto stored = read_stored_quantization(folder.path());
      ASSERT_TRUE(stored.has_value());
      EXPECT_EQ(stored->type, type);
      EXPECT_EQ(stored->double_quant, double_quant);
      again->visit_linears([&](const std::string& module, Linear& linear) {
        EXPECT_EQ(linear.quantized != nullptr, stored->applies(module)) << module;
      });
    }
}

/// A copy of a checkpoint in few bits whose tensors can be spoilt.
class SpoiltFile : public testing::Test {
 protected:
  void read(const std::string& name) {
    const auto dir = golden_path("models/" + name);
    const auto checkpoint = Checkpoint::open(dir);
    tensors_.clear();
    for (const auto& tensor : checkpoint.names()) tensors_[tensor] = checkpoint.view(tensor).clone();
    fs::copy_file(dir / "config.json", scratch_.path() / "config.json", fs::copy_options::overwrite_existing);
  }
  std::string load_error() {
    write_safetensors(scratch_.path() / "model.safetensors", tensors_);
    return message_of([&] { load_model(scratch_.path()); });
  }
  void set_state(const std::string& weight, const std::string& text) {
    const auto state = torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
    std::copy(text.begin(), text.end(), state.data_ptr<uint8_t>());
    tensors_[weight + ".quant_state.bitsandbytes__nf4"] = state;
  }
  Scratch scratch_;
  std::map<std::string, Tensor> tensors_;
};

TEST_F(SpoiltFile, NamesTheTensorThatDoesNotFit) {
  const std::string weight = "language_model.model.layers.0.mlp.down_proj.weight";
  const auto bytes = [](int64_t n) { return torch::zeros({n, 1}, torch::kByte); };
  const struct {
    const char* part;
    std::optional<Tensor> value;  // none: taken away
    const char* message;
  } cases[] = {
      {"", bytes(831), "expected U8 [832, 1]"},
      {"", torch::zeros({32, 26}, torch::kByte), "expected U8 [832, 1]"},
      {"", torch::zeros({832, 1}, torch::kChar), "down_proj.SCB\" is missing"},
      {".absmax", {}, "is missing"},
      {".absmax", torch::zeros({25}, torch::kByte), "expected U8 [26]"},
      {".absmax", torch::zeros({26}), "expected U8 [26]"},
      {".quant_map", {}, "is missing"},
      {".quant_map", torch::zeros({16}), "holds other numbers"},
      {".quant_map", torch::full({16}, NAN), "holds other numbers"},
      {".nested_absmax", {}, "is missing"},
      {".nested_absmax", torch::ones({2}), "expected F32 [1]"},
      {".nested_quant_map", torch::zeros({256}), "holds other numbers"},
      {".nested_quant_map", torch::zeros({255}), "expected F32 [256]"},
      {".quant_state.bitsandbytes__nf4", {}, "is missing"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.part);
    read("llava-clip-llama-nf4");
    if (c.value)
      tensors_[weight + c.part] = *c.value;
    else
      ASSERT_EQ(tensors_.erase(weight + c.part), 1U);
    EXPECT_THAT(load_error(), AllOf(HasSubstr(scratch_.path().string()), HasSubstr("down_proj"), HasSubstr(c.message)));
  }
}

TEST_F(SpoiltFile, NamesTheStateThatIsWrong) {
  const std::string weight = "language_model.model.layers.0.mlp.down_proj.weight";
  const std::string good =
      R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [32, 52], "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5})";
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"{\"quant", "\"quant", "is not a JSON object"},
      {"\"nf4\"", "\"fp4\"", "expected \"nf4\""},
      {"64", "128", "absmax"},
      {"64", "63", "expected a power of 2"},
      {"64", "-64", "expected a power of 2"},
      {"64", "4611686018427387904", "expected a power of 2"},
      {"64", "\"64\"", "expected a whole number"},
      {"[32, 52]", "[52, 32]", "config.json says [32, 52]"},
      {"[32, 52]", "[32]", "expected two sizes"},
      {"[32, 52]", "[4294967296, 4294967296]", "expected two sizes"},
      {"[32, 52]", "null", "expected two sizes"},
      {"256", "128", "expected 256"},
      {", \"nested_offset\": 0.5", "", "nested_offset: is missing"},
      {"0.5", "NaN", "is not a JSON object"},
  };
  read("llava-clip-llama-nf4");
  set_state(weight, good);
  ASSERT_EQ(load_error(), "no error");
  for (const auto& c : cases) {
    SCOPED_TRACE(c.to);
    auto text = good;
    text.replace(text.find(c.from), std::string(c.from).size(), c.to);
    set_state(weight, text);
    EXPECT_THAT(load_error(), AllOf(HasSubstr(scratch_.path().string()), HasSubstr("down_proj"), HasSubstr(c.message)));
  }
  set_state(weight, "");
  EXPECT_THAT(load_error(), HasSubstr("is not a JSON object"));
}

TEST_F(SpoiltFile, OtherTypesAreRefusedByName) {
  read("llava-clip-llama-nf4");
  const std::string weight = "language_model.model.layers.0.mlp.down_proj.weight";
  const auto state = tensors_.extract(weight + ".quant_state.bitsandbytes__nf4");
  tensors_[weight + ".quant_state.bitsandbytes__fp4"] = state.mapped();
  EXPECT_THAT(load_error(), AllOf(HasSubstr("bitsandbytes__fp4"), HasSubstr("nf4")));
  read("llava-clip-llama-nf4");
  tensors_["language_model.model.norm.weight"] = torch::zeros({16, 1}, torch::kByte);
  EXPECT_THAT(load_error(), HasSubstr("norm.weight"));
  read("llava-clip-llama-int8");
  tensors_["language_model.model.layers.0.mlp.down_proj.SCB"] = torch::ones({31});
  EXPECT_THAT(load_error(), HasSubstr("expected F32 [32]"));
  read("llava-clip-llama-int8");
  tensors_["language_model.model.layers.0.mlp.down_proj.weight_format"] = torch::tensor(2, torch::kByte);
  EXPECT_THAT(load_error(), HasSubstr("not stored row by row"));
}

TEST_F(SpoiltFile, ConfigOfAnotherMethodIsRefusedByName) {
  const struct {
    const char *config, *message;
  } cases[] = {
      {R"({"quant_method": "gptq", "bits": 4})", "gptq"},
      {R"({"quant_method": "awq"})", "awq"},
      {R"({"load_in_4bit": true})", "found fp4, expected nf4"},
      {R"({"load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_quant_storage": "bfloat16"})", "bfloat16"},
      {R"({"quant_method": "vlmtune", "type": "int5"})", "int5"},
      {R"({"quant_method": "vlmtune", "type": "int4", "group_size": 0})", "group_size"},
      {R"("nf4")", "expected an object"},
  };
  for (const auto& c : cases) {
    write_file_atomic(scratch_.path() / "config.json", fmt::format(R"({{"quantization_config": {}}})", c.config));
    EXPECT_THAT(message_of([&] { read_stored_quantization(scratch_.path()); }),
                AllOf(HasSubstr("config.json"), HasSubstr(c.message)));
  }
  write_file_atomic(scratch_.path() / "config.json", "{}");
  EXPECT_FALSE(read_stored_quantization(scratch_.path()).has_value());
}

}  // namespace
}  // namespace vlmtune::test
