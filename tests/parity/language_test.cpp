// Language models and rotary tables against transformers.
#include <iostream>
#include <nlohmann/json.hpp>

#include "lib/base/files.h"
#include "lib/models/config_reader.h"
#include "lib/nn/rope.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

class LanguageModel : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string("models/") + GetParam(); }
  Golden golden_{folder()};
};

TEST_P(LanguageModel, LogitsLossAndGradients) {
  const auto model = load_model(golden_path(folder()), train_everything());
  const auto batch = read_batch(golden_, model->config());
  expect_logits(forward_logits(*model, batch), golden_, batch);
  std::map<std::string, Tensor> gradients;
  EXPECT_NEAR(forward_loss(*model, batch, &gradients), golden_.number("loss"), kLossTolerance * golden_.number("loss"));
  if (golden_.has("grad_norm")) expect_gradients(gradients, golden_, [](const std::string& name) { return name; });
}

TEST_P(LanguageModel, GreedyTokens) {
  const auto model = load_model(golden_path(folder()));
  const auto stop_ids = read_stop_ids(golden_path(folder()));
  for (const char* key : {"generate", "generate_penalty"}) {
    if (!golden_.has(key)) continue;
    const auto prompts = golden_.generate(key);
    for (const auto& prompt : prompts) EXPECT_EQ(greedy(*model, golden_, {prompt}, stop_ids)[0], prompt.tokens) << key;
    if (model->config().text.rope.type == "dynamic") continue;  // its frequencies follow the longest row of a batch
    const auto together = greedy(*model, golden_, prompts, stop_ids);
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(together[i], prompts[i].tokens) << key << " " << i << " of a batch";
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, LanguageModel,
                         testing::Values("llama", "llama-llama3-rope", "llama-linear-rope", "llama-dynamic-rope",
                                         "llama-yarn-rope", "qwen2", "qwen3", "mistral"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(Language, ShortDynamicRopeKeepsItsFrequencies) {
  const Golden golden("models/llama-dynamic-rope");
  const auto model = load_model(golden_path("models/llama-dynamic-rope"));
  auto batch = read_batch(golden, model->config());
  batch.ids = batch.ids.narrow(1, 0, 12);
  batch.mask = batch.mask.narrow(1, 0, 12);
  expect_logits(forward_logits(*model, batch), golden, batch, "logits_short");
}

TEST(Language, RotaryTables) {
  const auto golden = nlohmann::json::parse(read_file(golden_path("rope/golden.json")));
  int cases = 0;
  for (const auto& value : golden.at("cases")) {
    SCOPED_TRACE(value.at("rope_parameters").dump());
    const nlohmann::json text = {{"model_type", "llama"},
                                 {"head_dim", value.at("head_dim")},
                                 {"rope_parameters", value.at("rope_parameters")},
                                 {"max_position_embeddings", value.at("max_position_embeddings")}};
    const auto config = read_decoder_config(ConfigReader::parse(text.dump(), "config.json"));
    const auto inverse =
        torch::tensor(value.at("inv_freq").get<std::vector<double>>(), torch::kDouble).to(torch::kFloat);
    const double scale = value.at("attention_factor");
    const auto length = value.at("sequence_length").is_null() ? int64_t{1} : value.at("sequence_length").get<int64_t>();
    for (const int64_t position : {0, 1, 7, 1000, 100'000}) {
      const auto tables = rope_tables(config.rope, torch::full({1, 1}, position, torch::kLong), length, torch::kFloat);
      const auto half = static_cast<double>(position) * inverse;
      const auto angles = torch::cat({half, half}).view({1, 1, 1, -1});
      // One unit in the last place of a frequency, grown by the position.
      const double tolerance = 2e-7 + 1.2e-7 * static_cast<double>(position);
      EXPECT_LE(difference(tables.cos, angles.cos() * scale), tolerance);
      EXPECT_LE(difference(tables.sin, angles.sin() * scale), tolerance);
    }
    ++cases;
  }
  EXPECT_EQ(cases, 17);
}

TEST(Language, OldAndNewRopeSpellingsMeanTheSame) {
  const auto read = [](const char* text) { return read_decoder_config(ConfigReader::parse(text, "config.json")).rope; };
  const auto old = read(R"({"rope_theta":5000.0,"rope_scaling":{"type":"linear","factor":2.5}})");
  const auto now = read(R"({"rope_parameters":{"rope_theta":5000.0,"rope_type":"linear","factor":2.5}})");
  for (const auto& rope : {old, now}) {
    EXPECT_EQ(rope.type, "linear");
    EXPECT_EQ(rope.theta, 5000);
    EXPECT_EQ(rope.factor, 2.5);
  }
  EXPECT_EQ(read(R"({"rope_scaling":null})").type, "default");
}

TEST(Language, ConfigDefaultsAndErrors) {
  const auto read = [](const char* text) { return read_decoder_config(ConfigReader::parse(text, "config.json")); };
  EXPECT_EQ(read("{}").vocab_size, 32000);
  EXPECT_EQ(read("{}").num_key_value_heads, 32);
  EXPECT_EQ(read(R"({"model_type":"mistral"})").num_key_value_heads, 8);
  EXPECT_EQ(read(R"({"model_type":"mistral"})").sliding_window, 4096);
  EXPECT_EQ(read(R"({"model_type":"mistral","sliding_window":null})").sliding_window, 0);
  EXPECT_TRUE(read(R"({"model_type":"qwen2"})").qkv_bias);
  EXPECT_FALSE(read(R"({"model_type":"qwen2"})").output_bias);
  const auto qwen =
      read(R"({"model_type":"qwen2","use_sliding_window":true,"max_window_layers":2,"num_hidden_layers":4})");
  EXPECT_EQ(qwen.layer_is_sliding, (std::vector<bool>{false, false, true, true}));
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"model_type":"gpt2"})", "/model_type"},
      {R"({"hidden_size":"big"})", "/hidden_size"},
      {R"({"num_hidden_layers":0})", "/num_hidden_layers"},
      {R"({"num_key_value_heads":5})", "/num_key_value_heads"},
      {R"({"head_dim":7})", "/head_dim"},
      {R"({"hidden_act":"mish"})", "/hidden_act"},
      {R"({"rope_scaling":{"type":"ntk"}})", "/rope_type"},
      {R"({"vocab_size":-1})", "/vocab_size"},
      {R"({"rope_parameters":{"rope_type":"longrope","short_factor":[1],"long_factor":[1]}})", "/short_factor"},
  };
  for (const auto& [text, place] : wrong)
    EXPECT_THAT(message_of([&, text = text] { read(text); }),
                testing::AllOf(testing::HasSubstr("config.json"), testing::HasSubstr(place)));
}

}  // namespace
}  // namespace vlmtune::test
