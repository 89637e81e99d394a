// Samples: image slots, labels by position, truncation at borders, prompts.
#include <gmock/gmock.h>

#include "lib/base/errors.h"
#include "tests/data/tiny_model.h"

namespace vlmtune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

class ExampleTest : public ::testing::Test {
 protected:
  ExampleTest() {
    model_.scratch.write("five.ppm", test::pixmap(5, 3));
    model_.scratch.write("three.ppm", test::pixmap(3, 9));
    model_.scratch.write("broken.ppm", test::pixmap(5, 3).substr(0, 30));
  }

  Row row(const std::string& images, const std::string& question, const std::string& answer) const {
    return model_
        .data(R"([{"id": "r", "images": )" + images + R"(, "conversations": [{"from": "human", "value": ")" + question +
              R"("}, {"from": "gpt", "value": ")" + answer + R"("}]}])")
        .row(0);
  }

  /// Bytes as text, image tokens as #, </s> as $.
  static std::string show(const std::vector<int64_t>& ids) {
    std::string text;
    for (const int64_t id : ids)
      text += id == test::kImage   ? '#'
              : id == test::kEos   ? '$'
              : id == test::kBos   ? '^'
              : id == kIgnoreLabel ? '.'
                                   : static_cast<char>(id);
    return text;
  }

  test::TinyModel model_;
};

TEST_F(ExampleTest, SlotsAndLabels) {
  const Example example =
      ExampleBuilder(model_.options()).build(row(R"(["five.ppm", "three.ppm"])", "a<image>\\nb <image>c", "Yes."));
  EXPECT_EQ(show(example.ids), "u:a#####b ###c|a:Yes.$");
  EXPECT_EQ(show(example.labels), ".................Yes.$");
  EXPECT_THAT(example.image_starts, ElementsAre(3, 10));
  EXPECT_THAT(example.image_lengths, ElementsAre(5, 3));
  EXPECT_EQ(example.image_tokens, 8);
  EXPECT_EQ(example.label_tokens, 5);
  ASSERT_EQ(example.images.size(), 2u);
  EXPECT_EQ(example.images[1].original, (ImageSize{3, 9}));
  EXPECT_EQ(example.images[1].pixels.size(), 3u * 4 * 4);
  EXPECT_FALSE(example.truncated);
}

TEST_F(ExampleTest, SeveralTurnsTrainEveryAnswer) {
  const Row turns =
      model_
          .data(
              R"([{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "1"}, {"role": "assistant", "content": "A"}, {"role": "user", "content": "2"}, {"role": "assistant", "content": "B"}]}])")
          .row(0);
  const Example example = ExampleBuilder(model_.options()).build(turns);
  EXPECT_EQ(show(example.ids), "s:S|u:1|a:A$u:2|a:B$");
  EXPECT_EQ(show(example.labels), "..........A$......B$");
}

TEST_F(ExampleTest, ControlTokensTypedByUsersStayText) {
  const Example example = ExampleBuilder(model_.options()).build(row("[]", "</s>", "<image>"));
  EXPECT_EQ(show(example.ids), "u:</s>|a:<image>$");
}

TEST_F(ExampleTest, LongRowsAreLeftOutOrRefused) {
  auto options = model_.options();
  const Row long_row = row(R"("five.ppm")", "<image>q", "answer");
  options.max_length = 18;
  EXPECT_EQ(ExampleBuilder(options).build(long_row).ids.size(), 18u);
  options.max_length = 17;
  for (const OverLength policy : {OverLength::kDrop, OverLength::kError}) {
    options.over_length = policy;
    const ExampleBuilder builder(options);
    Skip skip;
    const auto before = image_counters();
    EXPECT_THAT(builder.build(long_row, &skip).ids, IsEmpty());
    EXPECT_EQ(skip, Skip::kTooLong);
    EXPECT_EQ(image_counters().decoded, before.decoded);
    EXPECT_THAT([&] { builder.build(long_row); },
                ThrowsMessage<UserError>(AllOf(HasSubstr("data.json#0"), HasSubstr("18 tokens"), HasSubstr("17"))));
    EXPECT_EQ(builder.length_estimate(long_row), 18);
  }
}

TEST_F(ExampleTest, CuttingNeverSplitsAPicture) {
  auto options = model_.options();
  options.over_length = OverLength::kCutText;
  const Row turns =
      model_
          .data(
              R"([{"images": ["five.ppm", "three.ppm"], "conversations": [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "long answer"}, {"from": "human", "value": "<image>"}, {"from": "gpt", "value": "B"}]}])")
          .row(0);
  const auto build = [&](int64_t max_length, Skip* skip) {
    options.max_length = max_length;
    return ExampleBuilder(options).build(turns, skip);
  };
  Skip skip;
  EXPECT_EQ(show(build(29, &skip).ids), "u:#####|a:long answer$u:###|a");
  EXPECT_EQ(show(build(28, &skip).ids), "u:#####|a:long answer$u:###|");
  for (const int64_t length : {25, 24}) {  // inside or at the start of the second picture
    const Example cut = build(length, &skip);
    EXPECT_EQ(show(cut.ids), "u:#####|a:long answer$u:") << length;
    EXPECT_EQ(cut.images.size(), 1u);
    EXPECT_EQ(cut.image_tokens, 5);
    EXPECT_TRUE(cut.truncated);
  }
  EXPECT_EQ(show(build(14, &skip).labels), "..........long");
  EXPECT_EQ(skip, Skip::kNone);
  build(10, &skip);
  EXPECT_EQ(skip, Skip::kNoLabels);
  build(4, &skip);
  EXPECT_EQ(skip, Skip::kNoLabels);
}

TEST_F(ExampleTest, PromptIsTheStartOfTheTrainingSample) {
  const ExampleBuilder builder(model_.options());
  const Row both = row(R"("five.ppm")", "q", "Yes.");
  const Example prompt = builder.build_prompt(both);
  EXPECT_EQ(show(prompt.ids), "u:#####q|a:");
  EXPECT_EQ(show(builder.build(both).ids), show(prompt.ids) + "Yes.$");
  EXPECT_EQ(prompt.label_tokens, 0);
  EXPECT_EQ(prompt.images.size(), 1u);
}

TEST_F(ExampleTest, EachPictureIsDecodedAndProcessedOnce) {
  const auto before = image_counters();
  ExampleBuilder(model_.options()).build(row(R"(["five.ppm", "three.ppm"])", "q", "a"));
  EXPECT_EQ(image_counters().decoded - before.decoded, 2);
  EXPECT_EQ(image_counters().processed - before.processed, 2);
}

TEST_F(ExampleTest, WithoutATemplateTheTextIsRaw) {
  auto options = model_.options();
  options.chat_template = nullptr;
  options.prompt.add_bos = true;
  options.prompt.end_answers_with_eos = true;
  const Example example = ExampleBuilder(options).build(row(R"("three.ppm")", "q", "A"));
  EXPECT_EQ(show(example.ids), "^###qA$");
  EXPECT_EQ(show(example.labels), ".....A$");
}

TEST_F(ExampleTest, ErrorsNameRowAndPicture) {
  const ExampleBuilder builder(model_.options());
  EXPECT_THAT([&] { builder.build(row(R"("none.ppm")", "q", "a")); },
              ThrowsMessage<UserError>(AllOf(HasSubstr("data.json#0: "), HasSubstr("none.ppm"))));
  EXPECT_THAT(
      [&] { builder.build(row(R"("broken.ppm")", "q", "a")); },
      ThrowsMessage<UserError>(AllOf(HasSubstr("data.json#0: "), HasSubstr("broken.ppm"), HasSubstr("truncated"))));
  EXPECT_THAT([&] { builder.build(row(R"("http://host/x.png")", "q", "a")); },
              ThrowsMessage<UserError>(HasSubstr("network")));
  auto options = model_.options();
  options.image_processor = nullptr;
  EXPECT_THAT([&] { ExampleBuilder(options).build(row(R"("five.ppm")", "q", "a")); },
              ThrowsMessage<UserError>(HasSubstr("takes no pictures")));
  options = model_.options();
  options.vocab_size = 100;
  EXPECT_THAT([&] { ExampleBuilder(options).build(row("[]", "~", "a")); },
              ThrowsMessage<UserError>(HasSubstr("vocabulary of 100")));
}

TEST_F(ExampleTest, Description) {
  const Example example = ExampleBuilder(model_.options()).build(row(R"("five.ppm")", "Grüße?", "Yes."));
  EXPECT_EQ(describe_example(example, *model_.tokenizer), "u:[image: 5 tokens]Grüße?|a:[[Yes.</s>]]");
}

}  // namespace
}  // namespace vlmtune
