// Recalls against torchmetrics (scripts/golden/make_similarity.py).
#include "lib/evaluate/retrieval.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace vlmtune {
namespace {

using nlohmann::json;

TEST(Retrieval, RecallsOfTheReference) {
  const auto golden = json::parse(std::ifstream(VLMTUNE_TEST_DATA "/golden/similarity/golden.json"));
  std::vector<float> table;
  for (const auto& row : golden["similarities"])
    for (const float value : row) table.push_back(value);
  const auto scores = retrieval_scores(table, golden["picture_of"].get<std::vector<int64_t>>());
  ASSERT_EQ(scores.size(), golden["recalls"].size());
  for (const auto& [name, score] : scores) EXPECT_NEAR(score, golden["recalls"][name].get<double>(), 1e-6) << name;
}

TEST(Retrieval, OneOfEach) {
  for (const auto& [name, score] : retrieval_scores(std::vector<float>{0.25F}, {0}))
    EXPECT_EQ(score, name == "similarity" ? 0.25 : 1) << name;
}

}  // namespace
}  // namespace vlmtune
