// What the memory monitor warns of, and how often.
#include "lib/memory/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vlmtune {
namespace {

constexpr int64_t kMiB = 1 << 20;

std::string warnings(const std::function<void()>& work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

TEST(MemoryMonitor, SteadyRunsAreQuiet) {
  MemoryMonitor monitor(1000 * kMiB);
  EXPECT_EQ(warnings([&] {
              for (int i = 0; i < 20; ++i) monitor.step((i < 2 ? 10 : 300) * kMiB, 600 * kMiB, 900 * kMiB);
            }),
            "");
}

TEST(MemoryMonitor, GrowthIsNamedOnce) {
  MemoryMonitor monitor(std::nullopt);
  const auto text = warnings([&] {
    for (int i = 0; i < 20; ++i) monitor.step((300 + 30 * i) * kMiB, 2000 * kMiB, (900 + 60 * i) * kMiB);
  });
  EXPECT_THAT(text, testing::HasSubstr("stay allocated between steps"));
  EXPECT_THAT(text, testing::HasSubstr("resident memory"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(MemoryMonitor, WarnsBeforeTheLimit) {
  MemoryMonitor monitor(1000 * kMiB);
  EXPECT_EQ(warnings([&] { monitor.step(100, 940 * kMiB, 100); }), "");
  EXPECT_THAT(warnings([&] { monitor.step(100, 960 * kMiB, 100); }), testing::HasSubstr("longer rows may not fit"));
  EXPECT_EQ(warnings([&] { monitor.step(100, 970 * kMiB, 100); }), "");
}

}  // namespace
}  // namespace vlmtune
