// Sizes, errors, log and interrupts.
#include <gmock/gmock.h>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "lib/base/bytes.h"
#include "lib/base/errors.h"
#include "lib/base/interrupt.h"
#include "lib/base/log.h"
#include "tests/base/scratch.h"

namespace vlmtune {
namespace {

using testing::HasSubstr;

TEST(Bytes, ParseKnowsBothKindsOfUnit) {
  EXPECT_EQ(parse_bytes("100"), 100);
  EXPECT_EQ(parse_bytes("100B"), 100);
  EXPECT_EQ(parse_bytes("8GB"), 8'000'000'000);
  EXPECT_EQ(parse_bytes("8 GB"), 8'000'000'000);
  EXPECT_EQ(parse_bytes("512MiB"), 536'870'912);
  EXPECT_EQ(parse_bytes("7.5GiB"), 8'053'063'680);
  EXPECT_EQ(parse_bytes("1kB"), 1000);
  EXPECT_EQ(parse_bytes("1KiB"), 1024);
  EXPECT_EQ(parse_bytes("0"), 0);
}

TEST(Bytes, ParseRefusesEverythingElse) {
  for (const auto text : {"", "GB", "-1GB", "8G", "8gb", "8GBs", "8Gi", "nan", "inf", "1e30", "8 G B", "0x10", "8,5GB"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(Bytes, FormatKeepsThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1'830'000'000), "1.83 GB");
  EXPECT_EQ(format_bytes(18'300'000'000), "18.3 GB");
  EXPECT_EQ(format_bytes(183'000'000'000), "183 GB");
  EXPECT_EQ(format_bytes(999'999), "1.00 MB");
  EXPECT_EQ(format_bytes(-1'500), "-1.50 kB");
}

TEST(Errors, CarryTheirExitCode) {
  EXPECT_EQ(usage_error("{} {}", "a", 1).code(), ExitCode::kUsage);
  EXPECT_EQ(input_error("x").code(), ExitCode::kInput);
  EXPECT_EQ(memory_error("x").code(), ExitCode::kMemory);
  EXPECT_EQ(io_error("x").code(), ExitCode::kIo);
  EXPECT_STREQ(usage_error("{} {}", "a", 1).what(), "a 1");
  EXPECT_EQ(static_cast<int>(ExitCode::kIo), 5);
}

TEST(Errors, CheckNamesPlaceAndCondition) {
  const int two = 2;
  VLMTUNE_CHECK(two == 2, "holds");
  try {
    VLMTUNE_CHECK(two == 3, "found {}", two);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("base_test.cpp:"));
    EXPECT_THAT(error.what(), HasSubstr("found 2 (two == 3)"));
  }
}

class LogTest : public ScratchTest {
 protected:
  void TearDown() override {
    set_log_level(LogLevel::kInfo);
    open_log_file("");
    ScratchTest::TearDown();
  }
};

TEST_F(LogTest, LevelsAndPrefixes) {
  testing::internal::CaptureStderr();
  log_debug("hidden {}", 1);
  log_info("plain {}", 2);
  log_warning("careful");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "plain 2\nwarning: careful\n");
  set_log_level(LogLevel::kDebug);
  testing::internal::CaptureStderr();
  log_debug("shown");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "debug: shown\n");
  set_log_level(LogLevel::kError);
  testing::internal::CaptureStderr();
  log_warning("hidden");
  log_message(LogLevel::kError, "shown");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: shown\n");
}

TEST_F(LogTest, FileGetsEveryMessageAndIsAppendedTo) {
  const auto path = write("log.txt", "before\n");
  testing::internal::CaptureStderr();
  open_log_file(path);
  log_info("one");
  EXPECT_EQ(read(path), "before\none\n") << "flushed at once";
  open_log_file("");
  log_info("two");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "one\ntwo\n");
  EXPECT_EQ(read(path), "before\none\n");
  EXPECT_THROW(open_log_file(folder_ / "no/folder/log.txt"), UserError);
}

TEST_F(LogTest, ProgressPrintsPlainLinesWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("train", "step", 2);
    bar.update(1, "loss 2");
    bar.update(2, "loss 1");
  }
  const auto text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("train 100% |####################| 2/2 step"));
  EXPECT_THAT(text, HasSubstr("loss 1\n"));
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Interrupt, FirstSignalSetsTheFlagSecondEnds) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        if (interrupt_signal() != 0) std::_Exit(1);
        kill(getpid(), SIGTERM);
        for (int waited = 0; interrupt_signal() != SIGTERM; ++waited) {
          if (waited == 5000) std::_Exit(2);
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        kill(getpid(), SIGINT);
        std::this_thread::sleep_for(std::chrono::seconds(5));
        std::_Exit(3);
      },
      testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace vlmtune
