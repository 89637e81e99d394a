// Scores against the public evaluation codes (scripts/golden/make_metrics.py), and what those leave open.
#include "lib/evaluate/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/evaluate/captions.h"
#include "lib/evaluate/vqa.h"
#include "lib/evaluate/yes_no.h"

namespace vlmtune {
namespace {

using nlohmann::json;
using testing::ElementsAre;

const json& golden() {
  static const json document = json::parse(std::ifstream(VLMTUNE_TEST_DATA "/golden/metrics/golden.json"));
  return document;
}

TEST(Metrics, ScoresOfThePublicCodes) {
  for (const auto& [name, test] : golden()["cases"].items()) {
    std::vector<AnsweredRow> rows;
    for (const auto& row : test["rows"]) rows.push_back({row["answer"], row["references"]});
    std::vector<std::string> names;
    for (const auto& [metric, score] : test["scores"].items()) names.push_back(metric);
    const auto scores = compute_metrics(rows, names);
    ASSERT_EQ(scores.size(), names.size()) << name;
    for (const auto& [metric, score] : scores)
      EXPECT_NEAR(score, test["scores"][metric].get<double>(), 1e-9) << name << ": " << metric;
  }
}

TEST(Metrics, WordsOfCaptions) {
  for (const auto& pair : golden()["tokenized"])
    EXPECT_EQ(json(caption_words(pair[0].get<std::string>())), pair[1]) << pair[0];
}

TEST(Metrics, NormalizedVqaAnswers) {
  for (const auto& pair : golden()["normalized"])
    EXPECT_EQ(normalize_vqa_answer(pair[0].get<std::string>()), pair[1].get<std::string>()) << pair[0];
}

TEST(Metrics, EveryScoreUnlessSomeAreAskedFor) {
  const std::vector<AnsweredRow> rows{{"Yes", {"yes"}}, {"A dog.", {"a cat", "a dog"}}};
  std::vector<std::string> names;
  for (const auto& [name, score] : compute_metrics(rows)) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("exact_match", "anls", "vqa_accuracy", "bleu4", "rouge_l", "cider", "pope_accuracy",
                                 "pope_precision", "pope_recall", "pope_f1", "pope_yes_ratio"));
  EXPECT_EQ(compute_metrics({rows[1]}).size(), 6U) << "no row to be answered by yes or no";
  EXPECT_THAT(compute_metrics(rows, {"anls", "exact_match"}),
              ElementsAre(testing::Key("anls"), testing::Key("exact_match")));
}

TEST(Metrics, OneReferenceCountsByItself) {
  EXPECT_EQ(vqa_accuracy({{"The dog", {"dog"}}}), 1);
  EXPECT_EQ(vqa_accuracy({{"cat", {"dog"}}}), 0);
}

TEST(Metrics, YesAndNo) {
  EXPECT_TRUE(is_yes_no({"", {" Yes.\n"}}));
  EXPECT_FALSE(is_yes_no({"", {"yes and no"}}));
  const auto nothing_said = yes_no({{"no", {"no"}}});
  EXPECT_EQ(nothing_said.precision, 0);
  EXPECT_EQ(nothing_said.f1, 0);
  EXPECT_EQ(nothing_said.accuracy, 1);
}

TEST(Metrics, TextThatIsOdd) {
  EXPECT_THAT(caption_words(""), ElementsAre());
  EXPECT_THAT(caption_words(" \n\t"), ElementsAre());
  EXPECT_THAT(split_words("\u00a0a\u3000b\n"), ElementsAre("a", "b"));
  EXPECT_TRUE(std::isfinite(bleu4({{{}, {{}}}})));
  EXPECT_EQ(exact_match({{"  \u0130stanbul ", {"i\u0307stanbul"}}}), 1);
  EXPECT_EQ(anls({{"", {""}}}), 1);
}

}  // namespace
}  // namespace vlmtune
