// Which checkpoints stay, and what prune-ckpt shows and removes.
#include "lib/runs/retention.h"

#include <nlohmann/json.hpp>

#include "lib/runs/prune.h"
#include "tests/runs/runs_fixture.h"

namespace vlmtune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Kind = RetentionRule::Kind;

CheckpointList list_of(const std::vector<std::optional<double>>& eval_losses) {
  CheckpointList list;
  for (size_t i = 0; i < eval_losses.size(); ++i) {
    CheckpointInfo info;
    info.step = static_cast<int64_t>(i + 1);
    info.name = std::to_string(i + 1);
    info.bytes = 10;
    info.eval_loss = eval_losses[i];
    list.checkpoints.push_back(info);
  }
  return list;
}

std::vector<std::string> kept(const CheckpointList& list, const RetentionRule& rule) {
  std::vector<std::string> names;
  for (const auto& entry : plan_retention(list, rule).keep) names.push_back(entry.checkpoint.name);
  return names;
}

RetentionRule rule_of(Kind kind, int64_t keep_last, int64_t keep_best, bool memory_warning = false) {
  return {kind, keep_last, keep_best, 0.025, memory_warning};
}

TEST(Retention, NewestAndBestStay) {
  const auto list = list_of({3.0, 1.0, 2.0, 4.0, 5.0, 6.0});
  EXPECT_THAT(kept(list, rule_of(Kind::kNewestAndBest, 2, 1)), ElementsAre("2", "5", "6"));
  EXPECT_THAT(kept(list, rule_of(Kind::kNewestAndBest, 2, 2)), ElementsAre("2", "3", "5", "6"));
  EXPECT_THAT(kept(list, rule_of(Kind::kNewestAndBest, 1, 0)), ElementsAre("6"));
  EXPECT_THAT(kept(list, rule_of(Kind::kNewestAndBest, 1, 1)), ElementsAre("2", "6"))
      << "limit 1 never removes the best";
  EXPECT_THAT(kept(list, rule_of(Kind::kNewestAndBest, 100, 1)), ElementsAre("1", "2", "3", "4", "5", "6"));
  EXPECT_EQ(plan_retention(list, rule_of(Kind::kNewestAndBest, 2, 1)).freed_bytes, 30);
}

TEST(Retention, NoLimitRemovesNothing) {
  const auto list = list_of({3.0, 1.0, 2.0});
  for (const int64_t limit : {0, -1})
    for (const auto kind : {Kind::kNewestAndBest, Kind::kTotal, Kind::kLossDrop})
      EXPECT_THAT(kept(list, rule_of(kind, limit, 1)), ElementsAre("1", "2", "3"));
  EXPECT_THAT(kept(list_of({}), rule_of(Kind::kTotal, 1, 1)), IsEmpty());
}

TEST(Retention, TotalCountsTheProtectedOnes) {
  const auto list = list_of({3.0, 1.0, 2.0, 4.0, 5.0, 6.0});
  EXPECT_THAT(kept(list, rule_of(Kind::kTotal, 3, 1)), ElementsAre("2", "5", "6"));
  EXPECT_THAT(kept(list, rule_of(Kind::kTotal, 1, 1)), ElementsAre("2", "6")) << "protected ones exceed the limit";
  EXPECT_THAT(kept(list, rule_of(Kind::kTotal, 4, 1)), ElementsAre("2", "4", "5", "6"));
}

TEST(Retention, BestIsOfOneKindOfLoss) {
  auto list = list_of({std::nullopt, 2.0, std::nullopt, std::nullopt});
  for (auto& checkpoint : list.checkpoints) checkpoint.train_loss = 0.1 * static_cast<double>(checkpoint.step);
  EXPECT_THAT(kept(list, rule_of(Kind::kNewestAndBest, 1, 1)), ElementsAre("2", "4")) << "evaluated ones rank";
  list.checkpoints[1].eval_loss.reset();
  EXPECT_THAT(kept(list, rule_of(Kind::kNewestAndBest, 1, 1)), ElementsAre("1", "4")) << "else the training loss";
  for (auto& checkpoint : list.checkpoints) checkpoint.train_loss.reset();
  EXPECT_THAT(kept(list, rule_of(Kind::kNewestAndBest, 1, 1)), ElementsAre("4"));
}

TEST(Retention, NanIsNeverBestAndEqualsGoToTheNewer) {
  EXPECT_THAT(kept(list_of({2.0, std::nan(""), 3.0}), rule_of(Kind::kNewestAndBest, 1, 1)), ElementsAre("1", "3"));
  EXPECT_THAT(kept(list_of({2.0, 2.0, 3.0}), rule_of(Kind::kNewestAndBest, 1, 1)), ElementsAre("2", "3"));
}

TEST(Retention, LossDrop) {
  const auto slow = list_of({2.0, 1.99, 1.98, 1.97, 1.96});
  EXPECT_THAT(kept(slow, rule_of(Kind::kLossDrop, 3, 1)), ElementsAre("1", "2", "3", "4", "5")) << "2 % is not enough";
  const auto fast = list_of({2.0, 1.99, 1.98, 1.97, 1.94});
  EXPECT_THAT(kept(fast, rule_of(Kind::kLossDrop, 3, 1)), ElementsAre("3", "4", "5"));
  EXPECT_THAT(kept(list_of({2.0, 1.5, 1.98, 1.97, 1.96}), rule_of(Kind::kLossDrop, 3, 1, true)), ElementsAre("2", "5"))
      << "short of memory: the best and the newest";
  EXPECT_THAT(kept(list_of({std::nullopt, std::nullopt}), rule_of(Kind::kLossDrop, 1, 1)), ElementsAre("1", "2"));
}

TEST_F(RunsTest, ListTellsWholeCheckpointsFromTheRest) {
  save(2, 1.5, 1.6, 100);
  save(10);
  save(3);
  fs::remove(checkpoints_ / "step-000003/MANIFEST.json");
  write("checkpoints/step-000004-merged/model.safetensors", "x");
  write("checkpoints/step-99999999999999999999/a", "x");
  write("checkpoints/.tmp-step-000005/a.bin", "12345");
  write("checkpoints/notes.txt", "x");
  fs::create_directory_symlink("step-000002", checkpoints_ / "latest");
  fs::create_directory_symlink("step-000002", checkpoints_ / "step-000011");
  fs::create_directory_symlink("nowhere", checkpoints_ / "step-000012");
  const auto list = list_checkpoints(checkpoints_);
  ASSERT_EQ(list.checkpoints.size(), 2U);
  EXPECT_EQ(list.checkpoints[0].name, "step-000002");
  EXPECT_EQ(list.checkpoints[0].eval_loss, 1.5);
  EXPECT_GT(list.checkpoints[0].bytes, 100);
  EXPECT_EQ(list.checkpoints[1].name, "step-000010");
  ASSERT_EQ(list.stale.size(), 1U);
  EXPECT_EQ(list.stale[0].bytes, 5);
  std::vector<std::string> skipped;
  for (const auto& [name, reason] : list.skipped) skipped.push_back(name + ": " + reason.substr(0, 12));
  EXPECT_THAT(skipped, UnorderedElementsAre("latest: a symbolic l", "step-000003: half-written",
                                            "step-000004-merged: not a checkp", "step-000011: a symbolic l",
                                            "step-000012: a symbolic l", "step-99999999999999999999: not a checkp"));
}

TEST_F(RunsTest, TrainerCheckpointsAreKnown) {
  for (const int step : {100, 200, 1000}) {
    const auto name = fmt::format("out/checkpoint-{}", step);
    write(name + "/adapter_model.safetensors", std::string(50, 'x'));
    write(
        name + "/trainer_state.json",
        fmt::format(R"({{"global_step": {0}, "log_history": [{{"step": 50, "loss": 9.0}}, {{"step": {0}, "loss": {1}}},
                          {{"step": {0}, "eval_loss": {1}}}, {{"step": 5000, "eval_loss": 0.1}}]}})",
                    step, step == 200 ? 0.5 : 1.5));
  }
  write("out/checkpoint-300/adapter_model.safetensors", "x");  // killed before its state was written
  write("out/checkpoint-400/trainer_state.json", "{}");        // no weights
  write("out/checkpoint-100-merged/model.safetensors", "x");
  write("out/runs/events", "x");
  PruneOptions options{folder_ / "out", 1, 1, false};
  const auto report = nlohmann::json::parse(prune_json(prune_checkpoints(options)));
  EXPECT_EQ(report["keep"], (std::vector<std::string>{"checkpoint-200", "checkpoint-1000"}));
  EXPECT_EQ(report["delete"], std::vector<std::string>{"checkpoint-100"});
  EXPECT_EQ(report["skip"].size(), 4U);
  options.apply = true;
  prune_checkpoints(options);
  EXPECT_FALSE(fs::exists(folder_ / "out/checkpoint-100"));
  EXPECT_TRUE(fs::exists(folder_ / "out/checkpoint-100-merged/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "out/checkpoint-300"));
}

TEST_F(RunsTest, PruneShowsThenDeletes) {
  for (const int step : {1, 2, 3, 4, 5}) save(step, step == 2 ? 1.0 : 2.0, {}, 1000);
  write("checkpoints/.tmp-step-000009/a.bin", "12345");
  PruneOptions options{folder_, 2, 1, false};
  auto report = prune_checkpoints(options);
  const auto shown = nlohmann::json::parse(prune_json(report));
  EXPECT_EQ(shown["keep"], (std::vector<std::string>{"step-000002", "step-000004", "step-000005"}));
  EXPECT_EQ(shown["delete"], (std::vector<std::string>{"step-000001", "step-000003", ".tmp-step-000009"}));
  EXPECT_EQ(shown["skip"], nlohmann::json::array());
  EXPECT_EQ(shown["freed_bytes"], report.plan.freed_bytes);
  EXPECT_THAT(prune_table(report), HasSubstr("--apply deletes"));
  EXPECT_EQ(num_entries(checkpoints_), 6) << "nothing is touched without apply";

  options = {checkpoints_, 2, 1, true};
  report = prune_checkpoints(options);
  EXPECT_EQ(num_entries(checkpoints_), 3);
  EXPECT_EQ(report.result.freed_bytes, shown["freed_bytes"]);
  EXPECT_THAT(report.result.failed, IsEmpty());
  EXPECT_THAT(prune_table(report), HasSubstr("freed"));
  EXPECT_THAT(prune_checkpoints(options).plan.remove, IsEmpty()) << "a second run finds nothing to do";
}

TEST_F(RunsTest, OneFailureDoesNotStopTheOthers) {
  for (const int step : {1, 2, 3, 4}) save(step);
  auto plan = plan_retention(list_checkpoints(checkpoints_), rule_of(Kind::kNewestAndBest, 1, 0));
  ASSERT_EQ(plan.remove.size(), 3U);
  fs::rename(checkpoints_ / "step-000001", folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", checkpoints_ / "step-000001");  // between plan and deed
  fs::remove_all(checkpoints_ / "step-000002");
  const auto result = apply_retention(plan);
  ASSERT_EQ(result.failed.size(), 2U);
  EXPECT_EQ(result.failed[0].name, "step-000001");
  EXPECT_THAT(result.failed[0].reason, HasSubstr("symbolic link"));
  EXPECT_THAT(result.removed, ElementsAre("step-000003"));
  EXPECT_TRUE(fs::exists(folder_ / "elsewhere/MANIFEST.json")) << "what a link leads to is never touched";
  EXPECT_TRUE(fs::exists(checkpoints_ / "step-000004/MANIFEST.json"));
}

TEST_F(RunsTest, HalfRemovedCheckpointIsNotWhole) {
  save(1);
  save(2);
  fs::remove(checkpoints_ / "step-000002/MANIFEST.json");  // a removal that was cut off after its first act
  log_of([&] { EXPECT_EQ(newest_checkpoint(checkpoints_)->manifest.step, 1); });
  EXPECT_EQ(list_checkpoints(checkpoints_).checkpoints.size(), 1U);
}

TEST_F(RunsTest, ReadOnlyCheckpointIsReportedAndStays) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may delete anything";
  for (const int step : {1, 2, 3}) save(step);
  fs::permissions(checkpoints_ / "step-000001", fs::perms::owner_read | fs::perms::owner_exec);
  const auto report = prune_checkpoints({folder_, 1, 0, true});
  fs::permissions(checkpoints_ / "step-000001", fs::perms::owner_all);
  ASSERT_EQ(report.result.failed.size(), 1U);
  EXPECT_NO_THROW(verify_checkpoint(checkpoints_ / "step-000001", VerifyDepth::kHashes));
  EXPECT_FALSE(fs::exists(checkpoints_ / "step-000002"));
}

TEST_F(RunsTest, LinksInsideACheckpointAreNotFollowed) {
  write("precious/file", "x");
  fs::create_directory_symlink(folder_ / "precious", save(1) / "link");
  save(2);
  prune_checkpoints({folder_, 1, 0, true});
  EXPECT_FALSE(fs::exists(checkpoints_ / "step-000001"));
  EXPECT_TRUE(fs::exists(folder_ / "precious/file"));
}

TEST_F(RunsTest, PruneRefusesWhatIsNoRun) {
  EXPECT_EQ(error_of([&] { prune_checkpoints({folder_ / "absent"}); }).code(), ExitCode::kInput);
  EXPECT_THAT(prune_checkpoints({folder_}).plan.keep, IsEmpty()) << "an empty folder is nothing to do";
  fs::create_directories(folder_ / "real");
  fs::create_directory_symlink("real", folder_ / "checkpoints");
  EXPECT_THAT(error_of([&] { prune_checkpoints({folder_}); }).what(), HasSubstr("symbolic link"));
}

TEST_F(RunsTest, PruneLeavesTheCheckpointBeingWritten) {
  save(1);
  CheckpointWriter writer(checkpoints_, 2);
  const auto report = prune_checkpoints({folder_, 1, 0, true});
  ASSERT_EQ(report.plan.skip.size(), 1U);
  EXPECT_EQ(report.plan.skip[0].reason, "being written");
  EXPECT_TRUE(fs::exists(writer.path()));
}

}  // namespace
}  // namespace vlmtune
