// The order of an epoch: a permutation, reproducible, grouped as LLaVA does.
#include "lib/data/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "tests/data/scratch.h"

namespace vlmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::Ne;

class OrderTest : public ::testing::Test {
 protected:
  /// Rows of growing length; those with a picture at the given places.
  std::filesystem::path write(const std::string& name, int rows, const std::function<bool(int)>& has_image) {
    std::string text;
    for (int i = 0; i < rows; ++i)
      text += R"({"prompt": ")" + std::string(static_cast<size_t>(i * 37 % 101), 'x') +
              (has_image(i) ? R"(", "image": "a.png"})" : R"("})") + "\n";
    return scratch_.write(name, text);
  }
  Dataset open(std::vector<DataFile> files) {
    DatasetOptions options;
    options.files = std::move(files);
    return Dataset::open(options);
  }
  test::Scratch scratch_;
};

TEST_F(OrderTest, ShufflesByEpochAndSeed) {
  const Dataset data = open({{write("a", 100, [](int) { return false; }), 1}});
  const auto first = epoch_order(data, {.seed = 1}, 0);
  auto sorted = first;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(sorted[i], i);
  EXPECT_EQ(epoch_order(data, {.seed = 1}, 0), first);
  EXPECT_THAT(epoch_order(data, {.seed = 1}, 1), Ne(first));
  EXPECT_THAT(epoch_order(data, {.seed = 2}, 0), Ne(first));
  EXPECT_EQ(epoch_order(data, {.seed = 1, .shuffle = false}, 3), sorted);
}

// Fixed for ever: a resumed run must see the rows that the first one would have seen.
TEST_F(OrderTest, NumbersDoNotChange) {
  const Dataset data = open({{write("a", 8, [](int) { return false; }), 1}});
  EXPECT_THAT(epoch_order(data, {.seed = 42}, 0), ElementsAre(5, 7, 4, 0, 1, 6, 2, 3));
}

TEST_F(OrderTest, WeightsRepeatAndSample) {
  const Dataset data =
      open({{write("a", 10, [](int) { return false; }), 2}, {write("b", 10, [](int) { return false; }), 0.35}});
  const auto order = epoch_order(data, {.seed = 1}, 0);
  ASSERT_EQ(static_cast<int64_t>(order.size()), epoch_rows(data));
  EXPECT_EQ(order.size(), 24u);
  std::map<uint32_t, int> counts;
  for (const uint32_t row : order) ++counts[row];
  for (uint32_t row = 0; row < 10; ++row) EXPECT_EQ(counts[row], 2);
  auto sampled = [&](int64_t epoch) {
    std::vector<uint32_t> rows;
    for (const uint32_t row : epoch_order(data, {.seed = 1, .shuffle = false}, epoch))
      if (row >= 10) rows.push_back(row);
    return rows;
  };
  EXPECT_EQ(sampled(0).size(), 4u);
  EXPECT_THAT(sampled(0), Ne(sampled(1)));
}

TEST_F(OrderTest, GroupsAreOfOneModalityAndSimilarLength) {
  const Dataset data = open({{write("a", 103, [](int i) { return i % 3 != 0; }), 1}});
  const OrderOptions options{.seed = 5, .group_by_modality_length = true, .group_size = 8, .num_chunks = 4};
  const auto order = epoch_order(data, options, 0);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t i = 0; i < 103; ++i) ASSERT_EQ(sorted[i], i);
  // 68 with pictures and 35 without: 8 and 4 whole blocks, the last of each kind is left over.
  for (size_t block = 0; block + 8 <= 96; block += 8)
    for (size_t i = 1; i < 8; ++i) EXPECT_EQ(data.has_image(order[block]), data.has_image(order[block + i])) << block;
  EXPECT_TRUE(std::is_sorted(order.end() - 7, order.end()));
  // Micro-batches of two: the chunks' total lengths differ less than single rows do.
  std::vector<int64_t> totals;
  for (size_t i = 0; i < 8; i += 2) totals.push_back(data.row_bytes(order[i]) + data.row_bytes(order[i + 1]));
  EXPECT_LT(*std::max_element(totals.begin(), totals.end()), 2 * *std::min_element(totals.begin(), totals.end()));
  EXPECT_EQ(epoch_order(data, options, 0), order);
}

}  // namespace
}  // namespace vlmtune
