// The simulated CUDA caching allocator against published counts and against its own invariants.
#include "lib/memory/caching_allocator.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

namespace vlmtune {
namespace {

using Json = nlohmann::json;

Json read_vectors() {
  std::ifstream file(std::string(VLMTUNE_TEST_DATA) + "/memory/allocator_vectors.json");
  return Json::parse(file)["vectors"];
}

TEST(CachingAllocator, EqualsThePublishedVectors) {
  const auto vectors = read_vectors();
  ASSERT_EQ(vectors.size(), 23u);
  for (const auto& vector : vectors) {
    for (const auto& [mode, expected] : vector["expect"].items()) {
      CachingAllocatorOptions options;
      options.expandable_segments = mode == "expandable";
      options.padding = vector["options"].value("pad", 0);
      options.roundup_power2_divisions = vector["options"].value("div", 0);
      options.max_split_size = vector["options"].value("max_split", options.max_split_size);
      CachingAllocator allocator(options);
      std::map<std::string, uint64_t> ids;
      for (const auto& op : vector["ops"]) {
        const auto [at, is_new] = ids.emplace(op[1], ids.size());
        if (op[0] == "a")
          allocator.allocate(at->second, op[2]);
        else
          allocator.free(at->second);
      }
      const auto what = vector["name"].get<std::string>() + ", " + mode;
      EXPECT_EQ(allocator.allocated_bytes(), expected["allocated"].get<int64_t>()) << what;
      EXPECT_EQ(allocator.peak_allocated_bytes(), expected["peak_allocated"].get<int64_t>()) << what;
      EXPECT_EQ(allocator.reserved_bytes(), expected["reserved"].get<int64_t>()) << what;
      EXPECT_EQ(allocator.peak_reserved_bytes(), expected["peak_reserved"].get<int64_t>()) << what;
    }
  }
}

/// Random requests and releases: nothing is lost, and what is reserved covers what is allocated.
TEST(CachingAllocator, KeepsItsBooksUnderRandomUse) {
  for (const bool expandable : {false, true}) {
    std::mt19937_64 random(expandable ? 1 : 2);
    CachingAllocator allocator({.expandable_segments = expandable});
    std::map<uint64_t, int64_t> alive;
    int64_t total = 0;
    for (uint64_t id = 0; id < 20000; ++id) {
      if (!alive.empty() && random() % 2 == 0) {
        auto at = alive.begin();
        std::advance(at, static_cast<long>(random() % std::min<size_t>(alive.size(), 50)));
        allocator.free(at->first);
        total -= at->second;
        alive.erase(at);
      } else {
        const int64_t bytes = int64_t{1} << (random() % 27);
        const int64_t counted = allocator.allocate(id, bytes);
        ASSERT_GE(counted, bytes);
        alive[id] = counted;
        total += counted;
      }
      ASSERT_EQ(allocator.allocated_bytes(), total);
      ASSERT_GE(allocator.reserved_bytes(), total);
    }
    for (const auto& [id, bytes] : alive) allocator.free(id);
    EXPECT_EQ(allocator.allocated_bytes(), 0);
    const int64_t reserved = allocator.reserved_bytes();
    EXPECT_EQ(reserved, allocator.peak_reserved_bytes());
    allocator.empty_cache();
    EXPECT_EQ(allocator.reserved_bytes(), expandable ? reserved : 0);
  }
}

TEST(CachingAllocator, ReturnsItsCacheBeforeTheDeviceIsFull) {
  constexpr int64_t kMiB = 1 << 20;
  CachingAllocator allocator({.capacity = 150 * kMiB});
  allocator.allocate(1, 100 * kMiB);
  allocator.free(1);
  allocator.allocate(2, 120 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 120 * kMiB);
}

TEST(CachingAllocator, NothingAskedNothingCounted) {
  CachingAllocator allocator;
  EXPECT_EQ(allocator.allocate(1, 0), 0);
  allocator.free(1);
  EXPECT_EQ(allocator.reserved_bytes(), 0);
}

}  // namespace
}  // namespace vlmtune
