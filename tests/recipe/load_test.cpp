// Reading recipes: defaults, layers, --set, aliases, devices.
#include "tests/recipe/recipe_fixture.h"

namespace vlmtune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(RecipeTest, DefaultsArePublishedOnes) {
  const auto pretrain = default_recipe(Command::kPretrain);
  EXPECT_EQ(pretrain.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(pretrain.optimizer.weight_decay, 0);
  EXPECT_EQ(pretrain.schedule.warmup_ratio, 0.03);
  EXPECT_EQ(pretrain.schedule.type, ScheduleType::kCosine);
  EXPECT_EQ(pretrain.data.max_length, 2048);
  EXPECT_TRUE(pretrain.freeze.language_model && pretrain.freeze.vision_tower && !pretrain.freeze.projector);
  EXPECT_FALSE(pretrain.lora.has_value());
  EXPECT_FALSE(pretrain.data.group_by_modality_length);

  const auto lora = default_recipe(Command::kLoraFinetune);
  EXPECT_EQ(lora.optimizer.learning_rate, 2e-4);
  ASSERT_TRUE(lora.lora.has_value());
  EXPECT_EQ(lora.lora->r, 8);
  EXPECT_THAT(lora.lora->target_modules.names, ElementsAre("q_proj", "v_proj"));
  EXPECT_TRUE(lora.data.group_by_modality_length);
}

TEST_F(RecipeTest, FullFineTuningStartsFromItsOwnRate) {
  const auto full = load(R"({"freeze": {"language_model": false}})", Command::kPretrain);
  EXPECT_EQ(full.optimizer.learning_rate, 2e-5);
  EXPECT_TRUE(full.data.group_by_modality_length);
  const auto own =
      load(R"({"freeze": {"language_model": false}, "optimizer": {"learning_rate": 3e-6}})", Command::kPretrain);
  EXPECT_EQ(own.optimizer.learning_rate, 3e-6);
}

TEST_F(RecipeTest, EveryKindOfSettingIsRead) {
  const auto r = load(R"({
    // a comment
    "model": {"path": "m", "projector": "p.bin", "mm_projector_type": "mlp3x_gelu", "vision_select_layer": -1},
    "data": {"train": ["a.json", {"path": "b.jsonl", "weight": 0.5}], "validation": ["v.json"], "format": "qwen-vl",
             "truncation": "cut_text", "bad_sample_budget": 0},
    "image": {"aspect_ratio": "anyres_max_9", "grid_pinpoints": [[336, 672], [672, 336]]},
    "lora": {"target_modules": "regex:.*attn\\.(q|v)_proj", "vision_target_modules": ["q_proj"]},
    "precision": {"compute": "fp16", "loss_scale": 1024}, /* another */
    "optimizer": {"betas": [0.9, 0.95]},
    "train": {"max_steps": 1e3},
    "hardware": {"name": "mine", "device": "cuda", "capacity_bytes": 8e9, "flops": {"bf16": 1e14}}
  })");
  EXPECT_THAT(r.data.train, ElementsAre(DataSource{"a.json", 1}, DataSource{"b.jsonl", 0.5}));
  EXPECT_EQ(r.data.format, DataFormat::kQwenVl);
  EXPECT_EQ(r.data.truncation, Truncation::kCutText);
  EXPECT_EQ(r.image.aspect_ratio, "anyres_max_9");
  EXPECT_THAT(*r.image.grid_pinpoints, ElementsAre(std::array<int64_t, 2>{336, 672}, std::array<int64_t, 2>{672, 336}));
  EXPECT_EQ(r.lora->target_modules.kind, TargetModules::Kind::kRegex);
  EXPECT_EQ(r.lora->target_modules.regex, ".*attn\\.(q|v)_proj");
  EXPECT_EQ(r.precision.loss_scale, (LossScale{false, 1024}));
  EXPECT_EQ(r.optimizer.betas[1], 0.95);
  EXPECT_EQ(r.train.max_steps, 1000);
  EXPECT_EQ(r.hardware.capacity_bytes, 8'000'000'000);
  EXPECT_EQ(r.hardware.flops.at("bf16"), 1e14);
  EXPECT_EQ(r.model.vision_select_layer, -1);
}

TEST_F(RecipeTest, PrintedRecipeReadsBackEqual) {
  const auto rich = R"({"model": {"path": "a\"b\u00e9\n"}, "data": {"train": [{"path": "t", "weight": 0.1}]},
    "lora": {"target_modules": "all-linear", "alpha": 0.30000000000000004}, "precision": {"compute": "fp16", "loss_scale": 65536},
    "optimizer": {"learning_rate": 1.2345678901234567e-5}, "schedule": {"warmup_steps": 150},
    "train": {"per_device_batch_size": 4, "global_batch_size": 128}, "generation": {"stop": ["</s>", "\u2028"]},
    "hardware": {"name": "x", "device": "npu", "flops": {"fp16": 3.2e14}}})";
  for (const auto command : {Command::kPretrain, Command::kLoraFinetune, Command::kInfer}) {
    for (const std::string text : {"{}", rich}) {
      const auto recipe = load(text, command);
      const auto printed = print_recipe(recipe);
      EXPECT_EQ(load(printed, command), recipe) << printed;
      EXPECT_EQ(print_recipe(load(printed, command)), printed);
    }
    const auto printed = print_recipe(default_recipe(command));
    EXPECT_EQ(load(printed, command), default_recipe(command));
    EXPECT_THAT(log_of([&] { load(printed, command); }), IsEmpty()) << "a resolved recipe is silent";
  }
}

TEST_F(RecipeTest, ExtendsMergesObjectsAndReplacesLists) {
  write("base/base.json", R"({"data": {"train": ["a", "b"], "max_length": 100}, "lora": {"r": 4, "alpha": 4}})");
  write("mid.json", R"({"extends": "base/base.json", "lora": {"alpha": 32}})");
  const auto r = load(R"({"extends": "mid.json", "data": {"train": ["c"]}})");
  EXPECT_THAT(r.data.train, ElementsAre(DataSource{"c", 1}));
  EXPECT_EQ(r.data.max_length, 100);
  EXPECT_EQ(r.lora->r, 4);
  EXPECT_EQ(r.lora->alpha, 32);
}

TEST_F(RecipeTest, SetTakesJsonOrBareText) {
  const auto r = load_sets({"train.learning_rate=1e-4", "lora.target_modules=[\"q_proj\",\"k_proj\"]",
                            "precision.compute=fp32", "model.path=/a dir/with=equals", "data.train=rows.json",
                            "data.image_folder=null", "train.shuffle=false", "lora_r=16"});
  EXPECT_EQ(r.optimizer.learning_rate, 1e-4);
  EXPECT_THAT(r.lora->target_modules.names, ElementsAre("q_proj", "k_proj"));
  EXPECT_EQ(r.precision.compute, Precision::kFp32);
  EXPECT_EQ(r.model.path, "/a dir/with=equals");
  EXPECT_THAT(r.data.train, ElementsAre(DataSource{"rows.json", 1}));
  EXPECT_FALSE(r.data.image_folder.has_value());
  EXPECT_FALSE(r.train.shuffle);
  EXPECT_EQ(r.lora->r, 16);
  EXPECT_EQ(load(R"({"lora": {"r": 4}})", Command::kLoraFinetune, {"lora.r=5", "lora.r=6"}).lora->r, 6)
      << "the last wins";
}

TEST_F(RecipeTest, AliasesAreReadAndNamed) {
  Recipe r;
  const auto log = log_of([&] {
    r = load(R"({"lora_rank": 32, "model_name_or_path": "m", "freeze_vit": false, "bf16": false, "fp16": true,
      "lora": {"lora_alpha": 64, "lora_target": "q_proj,up_proj"}, "train": {"gradient_checkpointing": false, "learning_rate": 1e-5,
      "per_device_train_batch_size": 3}, "data": {"cutoff_len": 77, "truncation_strategy": "delete"}, "optim": "adamw_torch",
      "lr_scheduler_type": "linear", "output_dir": "out"})");
  });
  EXPECT_EQ(r.lora->r, 32);
  EXPECT_EQ(r.lora->alpha, 64);
  EXPECT_THAT(r.lora->target_modules.names, ElementsAre("q_proj", "up_proj"));
  EXPECT_EQ(r.model.path, "m");
  EXPECT_FALSE(r.freeze.vision_tower);
  EXPECT_EQ(r.precision.compute, Precision::kFp16);
  EXPECT_EQ(r.memory.checkpointing, "none");
  EXPECT_EQ(r.optimizer.learning_rate, 1e-5);
  EXPECT_EQ(r.train.per_device_batch_size, 3);
  EXPECT_EQ(r.data.max_length, 77);
  EXPECT_EQ(r.data.truncation, Truncation::kDrop);
  EXPECT_EQ(r.schedule.type, ScheduleType::kLinear);
  EXPECT_EQ(r.output.dir, "out");
  EXPECT_THAT(log, HasSubstr("lora_rank is now lora.r"));
  EXPECT_THAT(log, HasSubstr("train.learning_rate is now optimizer.learning_rate"));
  EXPECT_THAT(log, HasSubstr("data.cutoff_len is now data.max_length"));
}

TEST_F(RecipeTest, AliasOfAnotherToolsTargets) {
  EXPECT_EQ(load(R"({"lora_target": "all"})").lora->target_modules.kind, TargetModules::Kind::kAllLinear);
  EXPECT_EQ(load(R"({"lora_target_modules": "layers.*q_proj"})").lora->target_modules.regex, "layers.*q_proj");
  EXPECT_THAT(load(R"({"target_modules": ["o_proj"]})").lora->target_modules.names, ElementsAre("o_proj"));
}

TEST_F(RecipeTest, GlobalBatchDerivesAccumulation) {
  EXPECT_EQ(
      load(R"({"train": {"per_device_batch_size": 4, "global_batch_size": 32}})").train.gradient_accumulation_steps, 8);
  EXPECT_THAT(error_in(R"({"train": {"per_device_batch_size": 3, "global_batch_size": 32}})"),
              HasSubstr("multiple of"));
  EXPECT_THAT(error_in(R"({"train": {"gradient_accumulation_steps": 4, "global_batch_size": 32}})"),
              HasSubstr("/train/gradient_accumulation_steps"));
  EXPECT_THAT(error_of([&] {
                load_sets({"train.gradient_accumulation_steps=4", "train.global_batch_size=32"});
              }),
              HasSubstr("only one of the two"));
}

TEST_F(RecipeTest, LaterLayerReplacesTheAlternative) {
  write("base.json", R"({"train": {"gradient_accumulation_steps": 4}, "schedule": {"warmup_ratio": 0.1}})");
  const auto r =
      load(R"({"extends": "base.json", "train": {"global_batch_size": 6}, "schedule": {"warmup_steps": 10}})");
  EXPECT_EQ(r.train.gradient_accumulation_steps, 6);
  EXPECT_EQ(r.schedule.warmup_steps, 10);
  EXPECT_EQ(r.schedule.warmup_ratio, 0);
  const auto printed = print_recipe(r);
  EXPECT_EQ(load(printed, Command::kLoraFinetune, {"train.per_device_batch_size=2"}).train.gradient_accumulation_steps,
            3);
  EXPECT_EQ(load(printed, Command::kLoraFinetune, {"train.gradient_accumulation_steps=5"}).train.global_batch_size,
            std::nullopt);
  EXPECT_EQ(load(printed, Command::kLoraFinetune, {"schedule.warmup_ratio=0.2"}).schedule.warmup_steps, std::nullopt);
}

TEST_F(RecipeTest, HardwareByNameOrInline) {
  write("hardware/tiny.json",
        R"({"name": "tiny", "device": "cuda", "capacity_bytes": 1000000000, "context_bytes": 5})");
  auto r = load(R"({"hardware": "tiny"})");
  EXPECT_EQ(r.hardware.capacity_bytes, 1'000'000'000);
  r = load(R"({"hardware": "tiny", "train": {"seed": 1}})", Command::kLoraFinetune, {"hardware.context_bytes=7"});
  EXPECT_EQ(r.hardware.name, "tiny");
  EXPECT_EQ(r.hardware.context_bytes, 7);
  r = load(R"({"hardware": "tiny"})", Command::kLoraFinetune, {"hardware=cpu"});
  EXPECT_EQ(r.hardware.device, "cpu");
  EXPECT_NE(r.hardware.context_bytes, 5) << "nothing of the other device stays";
  EXPECT_THAT(error_in(R"({"hardware": "tinny"})"),
              testing::AllOf(HasSubstr("no device is called \"tinny\""), HasSubstr("tiny")));
  EXPECT_THAT(error_in(R"({"hardware": "../hardware/tiny"})"), HasSubstr("no device"));
  write("hardware/broken.json", R"({"name": "x", "capacity": 3})");
  EXPECT_THAT(error_in(R"({"hardware": "broken"})"), HasSubstr("broken.json: /capacity: unknown key, did you mean"));
  LoadOptions options;
  options.require_inputs = false;
  options.hardware_dirs = {folder_ / "more"};
  write("more/extra.json", R"({"name": "extra", "device": "npu"})");
  EXPECT_EQ(load_recipe("", Command::kInfer, {"hardware=extra"}, options).hardware.device, "npu");
  EXPECT_EQ(load_hardware("extra", options.hardware_dirs).name, "extra");
}

TEST_F(RecipeTest, UnusedKeysAreAWarning) {
  const auto text =
      R"({"lora": {"r": 4}, "train": {"seed": 7}, "optimizer": {"name": "lion"}, "memory": {"loss_chunk_tokens": 5},
                        "data": {"train": ["x"]}})";
  const auto log = log_of([&] { EXPECT_FALSE(load(text, Command::kInfer).lora.has_value()); });
  EXPECT_THAT(log, HasSubstr("infer does not use data.train, lora, memory.loss_chunk_tokens, optimizer, train"));
}

TEST_F(RecipeTest, UsedKeysAreNoWarning) {
  EXPECT_THAT(log_of([&] { load(R"({"lora": {"r": 4}, "train": {"seed": 7}})"); }), IsEmpty());
  EXPECT_THAT(log_of([&] { load(R"({"lora": {"r": 4}})", Command::kPretrain); }),
              HasSubstr("pretrain does not use lora"));
}

TEST_F(RecipeTest, WorksWithoutAFile) {
  const auto r = load_recipe("", Command::kInfer, {"model.path=m"});
  EXPECT_EQ(r.model.path, "m");
}

TEST_F(RecipeTest, ShippedRecipesAndDevicesLoad) {
  const std::filesystem::path recipes = std::filesystem::path(VLMTUNE_TEST_DATA).parent_path() / "recipes";
  int num_recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(recipes)) {
    if (entry.path().extension() != ".json") continue;
    const auto name = entry.path().stem().string();
    const auto command = name.find("lora") != std::string::npos    ? Command::kLoraFinetune
                         : name.find("infer") != std::string::npos ? Command::kInfer
                                                                   : Command::kPretrain;
    const auto log = log_of([&] { load_recipe(entry.path(), command, {}); });
    EXPECT_THAT(log, IsEmpty()) << entry.path();
    ++num_recipes;
  }
  EXPECT_GT(num_recipes, 0);
  for (const auto& entry : std::filesystem::directory_iterator(recipes / "hardware")) {
    const auto name = entry.path().stem().string();
    EXPECT_EQ(load_hardware(name, {recipes / "hardware"}).name, name);
  }
}

TEST_F(RecipeTest, ReferenceNamesEveryKey) {
  const auto text = recipe_reference();
  for (const auto key :
       {"`model.path`", "`data.train`", "`lora.target_modules`", "`memory.offload.optimizer`", "`generation.stop`",
        "`schedule.accumulation_stages`", "`hardware.flops`", "pretrain `0.001`, lora-finetune `0.0002`"})
    EXPECT_THAT(text, HasSubstr(key));
  EXPECT_THAT(text, HasSubstr("today: fail"));
  EXPECT_THAT(text, Not(HasSubstr("| |")));
}

}  // namespace
}  // namespace vlmtune
