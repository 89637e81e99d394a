// Checkpoints are whole or they are none: sealing, verifying, finding the newest.
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "lib/base/files.h"
#include "tests/runs/runs_fixture.h"

namespace vlmtune {
namespace {

using testing::HasSubstr;

TEST_F(RunsTest, SealedCheckpointHoldsItsManifest) {
  {
    CheckpointWriter writer(checkpoints_, 500);
    EXPECT_EQ(writer.path().filename(), ".tmp-step-000500");
    std::ofstream(writer.path() / "a.bin") << "abc";
    fs::create_directories(writer.path() / "sub");
    std::ofstream(writer.path() / "sub/b.bin") << "";
    EXPECT_EQ(writer.seal(1.5, 1.25), checkpoints_ / "step-000500");
  }
  EXPECT_EQ(num_entries(checkpoints_), 1);
  const auto manifest = verify_checkpoint(checkpoints_ / "step-000500", VerifyDepth::kHashes);
  EXPECT_EQ(manifest.step, 500);
  EXPECT_EQ(manifest.train_loss, 1.5);
  EXPECT_EQ(manifest.eval_loss, 1.25);
  ASSERT_EQ(manifest.files.size(), 2U);
  EXPECT_EQ(manifest.files.at("a.bin"), (ManifestFile{3, sha256_hex("abc")}));
  EXPECT_EQ(manifest.files.at("sub/b.bin"), (ManifestFile{0, sha256_hex("")}));
}

TEST_F(RunsTest, LossesThatAreNoNumbersAreLeftOut) {
  const auto manifest = read_manifest(save(1, std::nan(""), INFINITY));
  EXPECT_FALSE(manifest.eval_loss.has_value());
  EXPECT_FALSE(manifest.train_loss.has_value());
}

TEST_F(RunsTest, AbandonedWriterLeavesNothing) {
  {
    CheckpointWriter writer(checkpoints_, 1);
    std::ofstream(writer.path() / "a.bin") << "abc";
  }
  EXPECT_EQ(num_entries(checkpoints_), 0);
}

TEST_F(RunsTest, SecondCheckpointOfAStepReplacesTheFirst) {
  save(7, 1.0, {}, 10);
  const auto path = save(7, 2.0, {}, 20);
  EXPECT_EQ(verify_checkpoint(path, VerifyDepth::kHashes).eval_loss, 2.0);
  EXPECT_EQ(num_entries(checkpoints_), 1);
}

TEST_F(RunsTest, RemainsOfAKilledWriterAreClearedLivingOnesAreNot) {
  write("checkpoints/.tmp-step-000003/a.bin", "half");
  {
    CheckpointWriter writer(checkpoints_, 4);
    remove_stale_checkpoints(checkpoints_);
    EXPECT_FALSE(fs::exists(checkpoints_ / ".tmp-step-000003"));
    EXPECT_TRUE(fs::exists(writer.path()));
    EXPECT_THAT(error_of([&] { CheckpointWriter second(checkpoints_, 4); }).what(), HasSubstr("another process"));
  }
  write("checkpoints/.tmp-step-000005/a.bin", "half");
  save(5);
  EXPECT_EQ(num_entries(checkpoints_), 1);
  EXPECT_FALSE(verify_checkpoint(checkpoints_ / "step-000005", VerifyDepth::kHashes).files.contains("a.bin"));
}

TEST_F(RunsTest, KillDuringWritingLeavesTheOlderCheckpointNewest) {
  save(1);
  const pid_t child = ::fork();
  if (child == 0) {
    CheckpointWriter writer(checkpoints_, 2);
    std::ofstream(writer.path() / "a.bin") << "abc";
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(checkpoints_ / ".tmp-step-000002"));
  EXPECT_EQ(newest_checkpoint(checkpoints_)->manifest.step, 1);
  remove_stale_checkpoints(checkpoints_);
  EXPECT_EQ(num_entries(checkpoints_), 1);
}

TEST_F(RunsTest, FullDiskLeavesTheOlderCheckpointsWhole) {
  save(1);
  const pid_t child = ::fork();  // a file size limit fails the manifest the way a full disk does
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    try {
      CheckpointWriter writer(checkpoints_, 2);
      for (int i = 0; i < 40; ++i) std::ofstream(writer.path() / fmt::format("file-{}", i)) << "abc";
      const rlimit limit{1024, 1024};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      writer.seal({}, {});
    } catch (const UserError& error) {
      ::_exit(error.code() == ExitCode::kIo ? 42 : 1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(num_entries(checkpoints_), 1);
  EXPECT_EQ(newest_checkpoint(checkpoints_)->manifest.step, 1);
}

TEST_F(RunsTest, UnwritableFolderIsAnIoError) {
  write("file", "");
  EXPECT_EQ(error_of([&] { CheckpointWriter(folder_ / "file/checkpoints", 1); }).code(), ExitCode::kIo);
}

TEST_F(RunsTest, DamageIsNamed) {
  const auto path = save(1);
  const auto file = path / "adapter_model.safetensors";
  std::ofstream(file) << "wwwwwwwwwX";
  EXPECT_NO_THROW(verify_checkpoint(path, VerifyDepth::kSizes));
  EXPECT_THAT(error_of([&] { verify_checkpoint(path, VerifyDepth::kHashes); }).what(), HasSubstr("SHA-256 differs"));
  std::ofstream(file) << "www";
  EXPECT_THAT(error_of([&] { verify_checkpoint(path, VerifyDepth::kSizes); }).what(),
              HasSubstr("found 3 bytes, expected 10"));
  fs::remove(file);
  const auto error = error_of([&] { verify_checkpoint(path, VerifyDepth::kSizes); });
  EXPECT_THAT(error.what(), HasSubstr("adapter_model.safetensors"));
  EXPECT_EQ(error.code(), ExitCode::kInput);
}

TEST_F(RunsTest, BrokenManifestsAreRefused) {
  for (const auto text :
       {"", "{", "[]", "{}", R"({"step": "1", "files": {}})", R"({"step": 1, "files": []})",
        R"({"step": 1, "files": {"a": {}}})", R"({"step": 1, "files": {"a": {"size": 1, "sha256": 2}}})",
        R"({"step": 1, "files": {"../a": {"size": 1, "sha256": "x"}}})",
        R"({"step": 1, "files": {"/etc/passwd": {"size": 1, "sha256": "x"}}})"}) {
    write("c/MANIFEST.json", text);
    EXPECT_EQ(error_of([&] { read_manifest(folder_ / "c"); }).code(), ExitCode::kInput) << text;
  }
}

TEST_F(RunsTest, NewestGoesByStepAndSkipsDamage) {
  EXPECT_FALSE(newest_checkpoint(checkpoints_).has_value()) << "no folder yet";
  save(1'000'000);
  save(999);
  fs::last_write_time(checkpoints_ / "step-000999", fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(newest_checkpoint(checkpoints_)->path, checkpoints_ / "step-1000000");

  save(2'000'000);
  std::ofstream(checkpoints_ / "step-2000000/adapter_model.safetensors") << "wwwwwwwwwX";
  save(3'000'000);
  fs::remove(checkpoints_ / "step-3000000/MANIFEST.json");
  fs::rename(save(5), checkpoints_ / "step-4000000");
  fs::create_directory_symlink("step-1000000", checkpoints_ / "step-9000000");
  write("checkpoints/step-8000000-merged/MANIFEST.json", "{}");
  std::optional<SealedCheckpoint> newest;
  const auto log = log_of([&] { newest = newest_checkpoint(checkpoints_); });
  EXPECT_EQ(newest->manifest.step, 1'000'000);
  EXPECT_THAT(log, HasSubstr("step-2000000 is skipped"));
  EXPECT_THAT(log, HasSubstr("step-3000000 is skipped"));
  EXPECT_THAT(log, HasSubstr("step-4000000 is skipped"));
  EXPECT_THAT(log, testing::Not(HasSubstr("step-9000000")));
}

TEST_F(RunsTest, CheckpointNames) {
  EXPECT_EQ(checkpoint_name(500), "step-000500");
  EXPECT_EQ(checkpoint_name(12345678), "step-12345678");
  EXPECT_TRUE(is_temporary_checkpoint(".tmp-step-000500"));
  EXPECT_TRUE(is_temporary_checkpoint(".tmp-step-000500-old"));
  EXPECT_FALSE(is_temporary_checkpoint(".tmp-step-"));
  EXPECT_FALSE(is_temporary_checkpoint(".tmp-step-5x"));
  EXPECT_FALSE(is_temporary_checkpoint("step-000500"));
}

}  // namespace
}  // namespace vlmtune
