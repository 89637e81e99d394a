// What a wrong recipe is answered with: the file, the place, what was found, what was expected.
#include "lib/recipe/availability.h"
#include "lib/recipe/checks.h"
#include "lib/recipe/parser.h"
#include "tests/recipe/recipe_fixture.h"

namespace vlmtune {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST_F(RecipeTest, UnknownKeysNameTheNearest) {
  EXPECT_THAT(error_in(R"({"lora": {"alhpa": 3}})"),
              AllOf(HasSubstr("recipe.json: /lora/alhpa: unknown key"), HasSubstr("did you mean \"alpha\"?")));
  EXPECT_THAT(error_in(R"({"optimiser": {}})"), HasSubstr("/optimiser: unknown key, did you mean \"optimizer\"?"));
  EXPECT_THAT(error_in(R"({"train": {"learning_rat": 1}})"), HasSubstr("did you mean optimizer.learning_rate?"));
  EXPECT_THAT(error_in(R"({"memory": {"offload": {"optimzer": "cpu"}}})"),
              HasSubstr("/memory/offload/optimzer: unknown key, did you mean \"optimizer\"?"));
  EXPECT_THAT(error_in(R"({"data": {"train": [{"path": "x", "wieght": 2}]}})"), HasSubstr("/data/train/0/wieght"));
  EXPECT_THAT(error_in(R"({"resume_from_checkpoint": "x"})"), HasSubstr("use --resume"));
  EXPECT_THAT(error_in(R"({"qqqqqqqq": 1})"), testing::EndsWith("/qqqqqqqq: unknown key"));
}

TEST_F(RecipeTest, ErrorsNameTheLayerTheyAreIn) {
  write("base.json", R"({"lora": {"r": "eight"}})");
  EXPECT_THAT(error_in(R"({"extends": "base.json", "lora": {"r": 8}})"),
              HasSubstr("base.json: /lora/r: found \"eight\""));
  EXPECT_THAT(error_of([&] { load_sets({"lora.r=many"}); }),
              StartsWith("--set lora.r=many: /lora/r: found \"many\", expected an integer in [1, 65536]"));
  EXPECT_THAT(error_of([&] { load_sets({"lora.rr=3"}); }), HasSubstr("--set lora.rr=3: /lora/rr: unknown key"));
}

struct BadValue {
  const char *pointer, *json, *expected;
};

TEST_F(RecipeTest, WrongTypesAndRanges) {
  for (const auto& [pointer, json, expected] : {
           BadValue{"/lora/r", R"({"lora": {"r": 0}})", "found 0, expected an integer in [1, 65536]"},
           BadValue{"/lora/r", R"({"lora": {"r": 8.5}})", "an integer"},
           BadValue{"/lora/r", R"({"lora": {"r": null}})", "found null"},
           BadValue{"/lora/dropout", R"({"lora": {"dropout": 1.0}})", "a number in [0, 1)"},
           BadValue{"/lora/target_modules", R"({"lora": {"target_modules": "q_proj|v_proj"}})", "\"regex:...\""},
           BadValue{"/lora/target_modules", R"({"lora": {"target_modules": []}})", "module names"},
           BadValue{"/lora/target_modules", R"({"lora": {"target_modules": "regex:(q_proj"}})", "(ECMAScript)"},
           BadValue{"/precision/compute", R"({"precision": {"compute": "bf61"}})", "one of fp32, bf16, fp16"},
           BadValue{"/precision/loss_scale", R"({"precision": {"loss_scale": -1}})", "\"dynamic\" or a number above 0"},
           BadValue{"/memory/checkpointing", R"({"memory": {"checkpointing": "every:0"}})", "every:N"},
           BadValue{"/optimizer/betas", R"({"optimizer": {"betas": [0.9]}})", "a list of 2"},
           BadValue{"/optimizer/learning_rate", R"({"optimizer": {"learning_rate": "1e-4"}})",
                    "found \"1e-4\", expected a number"},
           BadValue{"/train/shuffle", R"({"train": {"shuffle": 1}})", "true or false"},
           BadValue{"/train", R"({"train": []})", "an object"},
           BadValue{"/train/seed", R"({"train": {"seed": 18446744073709551615}})", "an integer"},
           BadValue{"/data/train/1", R"({"data": {"train": ["a", 3]}})", "a file name"},
           BadValue{"/data/train/0/weight", R"({"data": {"train": [{"path": "a", "weight": 0}]}})", "above 0"},
           BadValue{"/image/aspect_ratio", R"({"image": {"aspect_ratio": "anyres_max_"}})", "anyres_max_N"},
           BadValue{"/image/grid_pinpoints", R"({"image": {"grid_pinpoints": [[336]]}})", "a list of 2"},
           BadValue{"/generation/top_p", R"({"generation": {"top_p": 0}})", "in (0, 1]"},
           BadValue{"/quantization/bits", R"({"quantization": {"bits": 5}})", "one of 4, 8, 16"},
       })
    EXPECT_THAT(error_in(json, pointer[1] == 'g' ? Command::kInfer : Command::kLoraFinetune),
                AllOf(HasSubstr(std::string("recipe.json: ") + pointer + ": "), HasSubstr(expected)));
}

TEST_F(RecipeTest, BrokenSyntaxNamesLineAndColumn) {
  EXPECT_THAT(error_in("{\n  \"lora\": {\"r\": 8,}\n}"), HasSubstr("recipe.json:2:"));
  EXPECT_THAT(error_in("{\"lora\": {\"r\": 8}"), HasSubstr("recipe.json:1:"));
  EXPECT_THAT(error_in(""), HasSubstr("recipe.json:1:"));
  EXPECT_THAT(error_in("[1]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_in("{} {}"), HasSubstr("recipe.json:1:4"));
  EXPECT_THAT(error_in("{\"train\": {\"seed\": 1, \"seed\": 2}}"), HasSubstr("\"seed\" is given twice"));
  EXPECT_THAT(error_in("{\"train\": {\"seed\": 1e999}}"), HasSubstr("recipe.json:1:"));
  EXPECT_THAT(error_in("{\"a\": \"\xff\"}"), HasSubstr("recipe.json:1:"));
  EXPECT_THAT(error_in(std::string(100'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(error_in("{ /* open"), HasSubstr("recipe.json:1:"));
}

TEST_F(RecipeTest, ExtendsFailures) {
  write("loop.json", R"({"extends": "recipe.json"})");
  EXPECT_THAT(error_in(R"({"extends": "loop.json"})"), HasSubstr("extends itself"));
  EXPECT_THAT(error_in(R"({"extends": "absent.json"})"), HasSubstr("absent.json"));
  EXPECT_THAT(error_in(R"({"extends": 3})"), HasSubstr("/extends: found 3"));
  EXPECT_THAT(error_of([&] { load_recipe(folder_ / "none.json", Command::kInfer, {}); }), HasSubstr("none.json"));
  EXPECT_THAT(error_of([&] { load_recipe(folder_, Command::kInfer, {}); }), HasSubstr("is a folder"));
}

TEST_F(RecipeTest, MalformedSets) {
  for (const auto argument : {"lora.r", "=3", ".r=3", "lora.=3", "lora..r=3", "lora.target_modules=[1,"})
    EXPECT_THAT(error_of([&] { load_sets({argument}); }), StartsWith(std::string("--set ") + argument));
  EXPECT_THAT(error_of([&] { load_sets({"lora=3"}); }), HasSubstr("/lora: found 3, expected an object"));
}

TEST_F(RecipeTest, AliasBesideItsSetting) {
  EXPECT_THAT(error_in(R"({"lora_r": 4, "lora": {"r": 8}})"), HasSubstr("same setting with two values, 4 and 8"));
  EXPECT_THAT(error_in(R"({"lora_r": 4, "lora_rank": 8})"), HasSubstr("same setting"));
  EXPECT_EQ(load(R"({"lora_r": 8, "lora": {"r": 8}})").lora->r, 8);
  EXPECT_THAT(error_in(R"({"lora_r": 4, "lora": 3})"), HasSubstr("/lora: found 3"));
}

TEST_F(RecipeTest, ContradictionsAreErrors) {
  EXPECT_THAT(error_in(R"({"schedule": {"warmup_steps": 5, "warmup_ratio": 0.1}})"),
              HasSubstr("/schedule/warmup_steps"));
  EXPECT_THAT(error_in(R"({"freeze": {"projector": true}})", Command::kPretrain), HasSubstr("everything is frozen"));
  EXPECT_THAT(error_in(R"({"freeze": {"language_model": false}})"), HasSubstr("full fine-tuning is pretrain"));
  EXPECT_THAT(error_in(R"({"lora": null})"), HasSubstr("full fine-tuning is pretrain"));
  EXPECT_THAT(error_in(R"({"train": {"eval_steps": 5}})"), HasSubstr("data.validation"));
  EXPECT_THAT(error_in(R"({"train": {"max_steps": 5}, "schedule": {"warmup_steps": 6}})"),
              HasSubstr("at most train.max_steps 5"));
  Recipe pixels = default_recipe(Command::kInfer);
  pixels.image.min_pixels = 10;
  pixels.image.max_pixels = 9;
  EXPECT_THAT(error_of([&] { check_recipe(pixels, Command::kInfer, "r", false); }), HasSubstr("/image/min_pixels"));
  Recipe budget = default_recipe(Command::kInfer);
  budget.memory.budget = "8 apples";
  EXPECT_THAT(error_of([&] { check_recipe(budget, Command::kInfer, "r", false); }), HasSubstr("8 apples"));
}

TEST_F(RecipeTest, AccumulationStagesAscendToTheEnd) {
  const auto stages = [](const std::string& list, const std::string& more = "{}") {
    return R"({"schedule": {"accumulation_stages": )" + list + R"(}, "train": )" + more + "}";
  };
  const auto two = R"([{"until_step": 500, "steps": 4}, {"steps": 2}])";
  const auto r = load(stages(two));
  EXPECT_EQ(r.schedule.accumulation_stages, (std::vector<AccumulationStage>{{500, 4}, {std::nullopt, 2}}));
  EXPECT_EQ(r.train.gradient_accumulation_steps, 4);
  const std::string place = "/schedule/accumulation_stages";
  EXPECT_THAT(error_in(stages("[]")), HasSubstr(place + ": found []"));
  EXPECT_THAT(error_in(stages(R"([{"until_step": 5, "steps": 4}])")), HasSubstr(place + "/0/until_step: found 5"));
  EXPECT_THAT(error_in(stages(R"([{"steps": 4}, {"steps": 2}])")), HasSubstr(place + "/0/until_step: not given"));
  EXPECT_THAT(error_in(stages(R"([{"until_step": 5}, {"until_step": 5}, {"steps": 2}])")),
              HasSubstr(place + "/1/until_step: found 5, expected more than 5"));
  EXPECT_THAT(error_in(stages(R"([{"steps": 0}])")), HasSubstr(place + "/0/steps: found 0"));
  EXPECT_THAT(error_in(stages(two, R"({"gradient_accumulation_steps": 2})")),
              AllOf(HasSubstr(place), HasSubstr("/train/gradient_accumulation_steps 2")));
  EXPECT_THAT(error_in(stages(two, R"({"global_batch_size": 4})")),
              AllOf(HasSubstr(place), HasSubstr("/train/global_batch_size 4")));
  EXPECT_THAT(error_of([&] {
                load_sets({"train.gradient_accumulation_steps=4", R"(schedule.accumulation_stages=[{"steps": 4}])"});
              }),
              HasSubstr("only one of the two"));

  // A later layer replaces the alternative, also in a printed recipe.
  const auto printed = print_recipe(r);
  EXPECT_EQ(load(printed), r);
  const auto plain = load(printed, Command::kLoraFinetune, {"train.gradient_accumulation_steps=3"});
  EXPECT_EQ(plain.schedule.accumulation_stages, std::nullopt);
  EXPECT_EQ(plain.train.gradient_accumulation_steps, 3);
  const auto other = load(printed, Command::kLoraFinetune, {R"(schedule.accumulation_stages=[{"steps": 7}])"});
  EXPECT_EQ(other.train.gradient_accumulation_steps, 7);
}

TEST_F(RecipeTest, EmbeddingCacheNeedsAFrozenTower) {
  const auto cache = R"({"data": {"embedding_cache": "dir"}})";
  EXPECT_EQ(load(cache).data.embedding_cache, "dir");
  EXPECT_THAT(error_of([&] { load(cache, Command::kPretrain, {"freeze.vision_tower=false"}); }),
              AllOf(HasSubstr("/data/embedding_cache"), HasSubstr("/freeze/vision_tower false")));
  EXPECT_THAT(error_of([&] { load(cache, Command::kLoraFinetune, {"lora.vision_target_modules=[\"q_proj\"]"}); }),
              AllOf(HasSubstr("/data/embedding_cache"), HasSubstr("/lora/vision_target_modules")));
}

TEST_F(RecipeTest, SettingsWithoutEffectWarn) {
  EXPECT_THAT(log_of([&] { load(R"({"precision": {"loss_scale": 8}})"); }),
              HasSubstr("precision.loss_scale has no effect"));
  EXPECT_THAT(log_of([&] { load(R"({"optimizer": {"vision_learning_rate": 1}})"); }),
              HasSubstr("vision_learning_rate has no effect"));
}

TEST_F(RecipeTest, MissingInputsAreNamed) {
  const auto file = write("empty.json", "{}");
  EXPECT_THAT(error_of([&] { load_recipe(file, Command::kInfer, {}); }), HasSubstr("/model/path: not given"));
  EXPECT_THAT(error_of([&] { load_recipe(file, Command::kPretrain, {"model.path=m"}); }),
              HasSubstr("/data/train: not given"));
  EXPECT_THAT(error_of([&] {
                load_recipe(file, Command::kPretrain, {"model.path=m", "data.train=d"});
              }),
              HasSubstr("/output/dir: not given"));
  load_recipe(file, Command::kPretrain, {"model.path=m", "data.train=d", "output.dir=o"});
}

TEST_F(RecipeTest, QuantisationTypesGoWithTheirBits) {
  EXPECT_EQ(load_sets({"bits=8"}).quantization.type, QuantizationType::kInt8);
  EXPECT_EQ(load_sets({"bits=4"}).quantization.type, QuantizationType::kNf4);
  EXPECT_THAT(error_of([&] {
                load_sets({"bits=8", "quantization.type=nf4"});
              }),
              HasSubstr("/quantization/type: 8 bits are int8"));
  EXPECT_THAT(error_of([&] {
                load_sets({"bits=4", "quantization.type=int8"});
              }),
              HasSubstr("/quantization/type: 4 bits are nf4 or int4"));
}

TEST_F(RecipeTest, FeaturesToComeAreRefusedByName) {
  for (const auto setting : {"parallel.tensor=2", "parallel.strategy=zero3", "precision.norms=bf16",
                             "image.adaptive={}", "image.token_pruning={\"keep_ratio\":0.5}", "memory.on_oom=shard",
                             "freeze.stages=[{}]", "memory.attention=window:256"})
    EXPECT_THAT(error_of([&] { load_sets({setting}); }), HasSubstr("not available yet")) << setting;
  EXPECT_THAT(error_of([&] { load_sets({"generation.kv_cache=int8"}, Command::kInfer); }),
              HasSubstr("not available yet"));
  EXPECT_THAT(error_of([&] { load_sets({"lora_bias=all"}, Command::kLoraFinetune); }),
              AllOf(HasSubstr("/lora/bias"), HasSubstr("not available yet")));
}

TEST_F(RecipeTest, AvailabilityTableNamesRealKeysAndAllowsTheDefaults) {
  for (const auto command : {Command::kLoraFinetune, Command::kInfer}) {
    const Value document = write_fields(default_recipe(command));
    for (const auto& row : availability_table()) {
      const Value* value = &document;
      for (size_t begin = 1; value != nullptr && begin < row.pointer.size();) {
        const auto end = std::min(row.pointer.find('/', begin), row.pointer.size());
        if (value->object() == nullptr) break;  // lora, null outside lora-finetune
        value = value->object()->find(row.pointer.substr(begin, end - begin));
        begin = end + 1;
      }
      ASSERT_NE(value, nullptr) << row.pointer;
      if (command != Command::kLoraFinetune && row.pointer.starts_with("/lora")) continue;
      EXPECT_EQ(find_unavailable(row.pointer, *value), nullptr) << row.pointer;
    }
  }
}

}  // namespace
}  // namespace vlmtune
