// What the rows of a data set come to, and the words about it.
#include "lib/data/check.h"

#include <gmock/gmock.h>

#include "lib/base/errors.h"
#include "tests/data/tiny_model.h"

namespace vlmtune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class CheckTest : public ::testing::Test {
 protected:
  CheckTest() {
    model_.scratch.write("5.ppm", test::pixmap(5, 8));
    // The header is there, its pixels are not: that costs a training run one row, and this check a decoding.
    model_.scratch.write("headless.ppm", "P6 9");
  }

  static std::string row(const std::string& question, const std::string& answer, const std::string& image = "") {
    return fmt::format(
        R"({{{}"conversations": [{{"from": "human", "value": "{}"}}, {{"from": "gpt", "value": "{}"}}]}})"
        "\n",
        image.empty() ? "" : fmt::format(R"("image": "{}", )", image), question, answer);
  }

  /// Tokens of a row: <s>, "u:", question, "|", "a:", answer, </s>.
  static constexpr int64_t kFrame = 7;

  DatasetCheck check(const std::string& rows, OverLength over_length = OverLength::kDrop, int workers = 2) {
    auto options = model_.options();
    options.prompt.add_bos = true;
    options.max_length = 30;
    options.over_length = over_length;
    ::testing::internal::CaptureStderr();
    const auto found = check_dataset(model_.data(rows), ExampleBuilder(options), workers);
    said_ = ::testing::internal::GetCapturedStderr();
    return found;
  }

  test::TinyModel model_;
  std::string said_;
};

TEST_F(CheckTest, CountsWhatIsThere) {
  const auto found = check(row("ab", "cde") + row("ab", "c", "5.ppm") + row("q", std::string(40, 'x')));
  EXPECT_EQ(found.rows, 3);
  EXPECT_EQ(found.usable, 2);
  EXPECT_EQ(found.too_long, 1);
  EXPECT_EQ(found.bad + found.no_labels, 0);
  EXPECT_EQ(found.text_tokens, kFrame + 5 + kFrame + 3);
  EXPECT_EQ(found.image_tokens, 5);
  EXPECT_EQ(found.images, 1);
  EXPECT_EQ(found.label_tokens, 4 + 2);
  EXPECT_THAT(found.lengths, ElementsAre(Pair(kFrame + 5, 1), Pair(kFrame + 8, 1), Pair(kFrame + 41, 1)));
  EXPECT_THAT(said_, Not(HasSubstr("data.json")));
}

TEST_F(CheckTest, NamesEveryBadRowInOrder) {
  std::string rows;
  for (int i = 0; i < 9000; ++i) {
    if (i == 3) rows += "{\"conversations\": \n";
    if (i == 4) rows += row("a", "b", "none.ppm");
    if (i == 5000) rows += row("a", "b", "headless.ppm");
    if (i == 8999) rows += row("<image><image>", "b", "5.ppm");
    if (i != 3 && i != 4 && i != 5000 && i != 8999) rows += row("a", "b");
  }
  for (const int workers : {0, 1, 3}) {
    EXPECT_EQ(check(rows, OverLength::kDrop, workers).bad, 4);
    size_t at = 0;
    for (const char* place : {"data.json:4: ", "data.json:5: ", "data.json:5001: ", "data.json:9000: "}) {
      at = said_.find(place, at);
      ASSERT_NE(at, std::string::npos) << place << said_;
    }
  }
}

TEST_F(CheckTest, RowsWithoutLabelsAndLongOnes) {
  const std::string rows = row("a", "") + row(std::string(40, 'x'), "b");
  auto found = check(rows, OverLength::kError);
  EXPECT_EQ(found.usable, 0);
  EXPECT_EQ(found.too_long, 1);
  EXPECT_THAT(said_, HasSubstr("data.json:2: the row is 48 tokens long, more than the limit of 30"));
  found = check(rows, OverLength::kCutText);
  EXPECT_EQ(found.no_labels, 2) << "what is cut off is all that would train";
  EXPECT_EQ(found.too_long, 1);
  EXPECT_THAT(said_, HasSubstr("data.json:2: the row has no token to train on"));
}

TEST_F(CheckTest, Words) {
  DatasetCheck found;
  found.rows = 8;
  found.usable = 6;
  found.bad = 1;
  found.too_long = 1;
  found.lengths = {{3, 2}, {10, 2}, {11, 1}, {30, 1}, {31, 1}};
  const auto words = describe_check(found, 30);
  EXPECT_THAT(words, AllOf(HasSubstr("8 rows: 6 usable, 1 bad, 0 without labels, 1 (12.5 %) longer than 30 tokens"),
                           HasSubstr("14 on average, median 10, 95 % up to 31, longest 31")));
  EXPECT_THAT(words, AllOf(HasSubstr(" 0 - 5 "), HasSubstr(" 26 - 30 "), HasSubstr(" 31 - 31 "),
                           HasSubstr("14.3 %  beyond data.max_length")));
  EXPECT_THAT(describe_check({}, 30), HasSubstr("0 rows"));
  found.rows = found.usable = 1;
  found.bad = found.too_long = 0;
  found.lengths = {{7, 1}};
  EXPECT_THAT(describe_check(found, 30), AllOf(HasSubstr("100.0 %"), Not(HasSubstr("beyond"))));
}

}  // namespace
}  // namespace vlmtune
