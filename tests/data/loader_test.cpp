// Batches: steps and epochs, the same with any number of workers, resuming, skipping within a budget.
#include "lib/data/loader.h"

#include <gmock/gmock.h>

#include "lib/base/errors.h"
#include "lib/data/packing.h"
#include "tests/data/tiny_model.h"

namespace vlmtune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() {
    for (int width = 1; width <= 6; ++width) model_.scratch.write(fmt::format("{}.ppm", width), test::pixmap(width, 8));
    model_.scratch.write("broken.ppm", "P6 9");
  }

  /// Row i answers with its number; every third has no picture. `broken` rows have a picture that cannot be read.
  Dataset rows(int count, const std::vector<int>& broken = {}) const {
    std::string text;
    for (int i = 0; i < count; ++i) {
      const bool bad = std::find(broken.begin(), broken.end(), i) != broken.end();
      const std::string image = bad          ? R"("image": "broken.ppm", )"
                                : i % 3 == 0 ? ""
                                             : fmt::format(R"("image": "{}.ppm", )", 1 + i % 6);
      text +=
          fmt::format(R"({{{}"conversations": [{{"from": "human", "value": "{}"}}, {{"from": "gpt", "value": "{}"}}]}})"
                      "\n",
                      image, std::string(static_cast<size_t>(i * 13 % 29), 'q'), i);
    }
    return model_.data(text);
  }

  static LoaderOptions options(int workers) {
    LoaderOptions options;
    options.num_workers = workers;
    options.accumulation = [](int64_t) { return 8; };
    return options;
  }

  static std::vector<int64_t> row_numbers(const StepBatch& batch) {
    std::vector<int64_t> rows;
    for (const MicroBatch& micro : batch.micro)
      for (const Example& example : micro) rows.push_back(example.row);
    return rows;
  }

  /// Everything that comes out, as text.
  static std::vector<std::string> drain(BatchLoader& loader, int most = 1000) {
    std::vector<std::string> steps;
    while (auto batch = most-- > 0 ? loader.next() : std::nullopt)
      steps.push_back(fmt::format("{} {} rows {} tokens {} images {} labels {}", batch->epoch, batch->position_after,
                                  ::testing::PrintToString(row_numbers(*batch)), batch->tokens, batch->image_tokens,
                                  batch->label_tokens));
    return steps;
  }

  test::TinyModel model_;
  ExampleBuilder builder_{model_.options()};
};

TEST_F(LoaderTest, HundredMicroBatchesByEightAreThirteenSteps) {
  auto settings = options(2);
  settings.num_epochs = 2;
  BatchLoader loader(rows(100), builder_, settings);
  EXPECT_EQ(loader.total_steps(1), 13);
  EXPECT_EQ(loader.total_steps(2), 26);
  std::vector<size_t> micro;
  std::vector<int64_t> epochs, seen;
  while (auto batch = loader.next()) {
    micro.push_back(batch->micro.size());
    epochs.push_back(batch->epoch);
    int64_t labels = 0;
    for (const MicroBatch& m : batch->micro) labels += m[0].label_tokens;
    EXPECT_EQ(labels, batch->label_tokens);
    if (batch->epoch == 0)
      for (const int64_t row : row_numbers(*batch)) seen.push_back(row);
  }
  ASSERT_EQ(micro.size(), 26u);
  EXPECT_EQ(micro[12], 4u);
  EXPECT_EQ(micro[13], 8u);
  EXPECT_EQ(epochs[12], 0);
  EXPECT_EQ(epochs[13], 1);
  std::sort(seen.begin(), seen.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  EXPECT_FALSE(loader.next());
}

TEST_F(LoaderTest, WorkersDoNotChangeWhatComesOut) {
  for (const bool grouped : {false, true}) {
    std::vector<std::vector<std::string>> runs;
    for (const int workers : {0, 1, 4}) {
      for (const int64_t bytes : {int64_t{1}, int64_t{1} << 20}) {
        auto settings = options(workers);
        settings.num_epochs = 2;
        settings.micro_batch_size = 2;
        settings.group_by_modality_length = grouped;
        settings.prefetch_bytes = bytes;
        settings.bad_sample_budget = 0.1;
        BatchLoader loader(rows(50, {4, 5, 40}), builder_, settings);
        runs.push_back(drain(loader));
        EXPECT_EQ(loader.counts().bad, 3);
      }
    }
    EXPECT_THAT(runs, Each(runs[0]));
  }
}

TEST_F(LoaderTest, SeekContinuesARun) {
  auto settings = options(3);
  settings.num_epochs = 3;
  settings.bad_sample_budget = 1;
  const Dataset data = rows(37, {7, 20});
  BatchLoader whole(data, builder_, settings);
  std::vector<std::pair<int64_t, int64_t>> places{{0, 0}};
  std::vector<std::string> steps;
  while (auto batch = whole.next()) {
    places.emplace_back(batch->epoch, batch->position_after);
    steps.push_back(::testing::PrintToString(row_numbers(*batch)));
  }
  BatchLoader resumed(data, builder_, settings);
  for (size_t step = 0; step < steps.size(); ++step) {
    resumed.seek(places[step].first, places[step].second, static_cast<int64_t>(step));
    for (size_t after = step; after < steps.size(); ++after)
      ASSERT_EQ(::testing::PrintToString(row_numbers(*resumed.next())), steps[after]) << "from step " << step;
    ASSERT_FALSE(resumed.next());
  }
  EXPECT_THROW(resumed.seek(0, 38, 0), UserError);
}

TEST_F(LoaderTest, AccumulationMayChangeByStep) {
  auto settings = options(1);
  settings.num_epochs = 1;
  settings.accumulation = [](int64_t step) { return step < 2 ? 4 : 2; };
  settings.shuffle = false;
  BatchLoader loader(rows(13), builder_, settings);
  std::vector<int64_t> samples;
  while (auto batch = loader.next()) samples.push_back(batch->samples);
  EXPECT_THAT(samples, ElementsAre(4, 4, 2, 2, 1));
  EXPECT_EQ(loader.total_steps(1), 5);
}

TEST_F(LoaderTest, PackedRowsHoldEverySampleOnceWithinTheLimit) {
  auto example_options = model_.options();
  example_options.max_length = 60;
  const ExampleBuilder builder(example_options);
  auto settings = options(2);
  settings.packing = true;
  settings.num_epochs = 2;
  settings.micro_batch_size = 2;
  settings.accumulation = [](int64_t step) { return step < 2 ? 2 : 1; };
  settings.bad_sample_budget = 0.1;
  const Dataset data = rows(50, {4, 40});
  BatchLoader loader(data, builder, settings);
  const int64_t planned = loader.total_steps(2);
  int64_t steps = 0;
  std::vector<std::string> answers;
  bool several = false;
  while (auto batch = loader.next()) {
    ASSERT_LE(batch->micro.size(), steps < 2 ? 2u : 1u);
    ++steps;
    int64_t samples = 0, labels = 0, tokens = 0;
    for (const MicroBatch& micro : batch->micro) {
      ASSERT_LE(micro.size(), 2u);
      for (const Example& row : micro) {
        ASSERT_LE(row.ids.size(), 60u);
        several |= row.sample_starts.size() > 2;
        samples += static_cast<int64_t>(row.sample_starts.size());
        tokens += static_cast<int64_t>(row.ids.size());
        int64_t trained = 0;
        for (size_t t = 1; t < row.labels.size(); ++t) trained += row.labels[t] != kIgnoreLabel;
        EXPECT_EQ(trained, row.label_tokens);
        labels += trained;
        for (const int64_t start : row.sample_starts) EXPECT_EQ(row.labels[static_cast<size_t>(start)], kIgnoreLabel);
        ASSERT_EQ(row.images.size(), row.image_starts.size());
        for (size_t i = 0; i < row.images.size(); ++i)
          for (int64_t t = 0; t < row.image_lengths[i]; ++t)
            EXPECT_EQ(row.ids[static_cast<size_t>(row.image_starts[i] + t)], test::kImage);
        std::string answer;
        for (const int64_t label : row.labels)
          if (label == test::kEos)
            answers.push_back(std::exchange(answer, ""));
          else if (label != kIgnoreLabel)
            answer += static_cast<char>(label);
      }
    }
    EXPECT_EQ(batch->samples, samples);
    EXPECT_EQ(batch->label_tokens, labels);
    EXPECT_EQ(batch->tokens, tokens);
  }
  EXPECT_TRUE(several);
  EXPECT_EQ(steps, planned);
  std::sort(answers.begin(), answers.end());
  std::vector<std::string> expected;
  for (int i = 0; i < 50; ++i)
    if (i != 4 && i != 40) expected.insert(expected.end(), 2, std::to_string(i));
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(answers, expected);
}

TEST_F(LoaderTest, MicroBatchesTakeRowsUpToABudgetOfTokens) {
  const ExampleBuilder builder(model_.options());
  const Dataset data = rows(90, {4, 40});
  auto settings = options(2);
  settings.micro_batch_tokens = 200;
  settings.num_epochs = 2;
  settings.group_by_modality_length = true;
  settings.accumulation = [](int64_t step) { return step < 2 ? 2 : 1; };
  settings.bad_sample_budget = 0.1;
  BatchLoader loader(data, builder, settings);
  const int64_t planned = loader.total_steps(2);
  int64_t steps = 0, samples = 0, micro_batches = 0;
  while (auto batch = loader.next()) {
    ASSERT_LE(batch->micro.size(), steps++ < 2 ? 2u : 1u);
    for (const MicroBatch& micro : batch->micro) {
      ASSERT_FALSE(micro.empty());
      ++micro_batches;
      size_t longest = 0;
      for (const Example& row : micro) longest = std::max(longest, row.ids.size());
      EXPECT_LE(static_cast<int64_t>(micro.size()) * padded_length(static_cast<int64_t>(longest)), 200);
      samples += static_cast<int64_t>(micro.size());
    }
  }
  EXPECT_EQ(steps, planned);
  EXPECT_EQ(samples, 2 * 88);
  EXPECT_GT(samples, 2 * micro_batches);
}

TEST_F(LoaderTest, ASampleLongerThanTheBudgetStandsAlone) {
  const ExampleBuilder builder(model_.options());
  const Dataset data = rows(9, {});
  auto settings = options(0);
  settings.micro_batch_tokens = 1;
  settings.num_epochs = 1;
  settings.accumulation = [](int64_t) { return 1; };
  BatchLoader loader(data, builder, settings);
  while (auto batch = loader.next()) EXPECT_EQ(batch->samples, 1);
}

TEST_F(LoaderTest, PackingDoesNotDependOnWorkersAndResumes) {
  auto example_options = model_.options();
  example_options.max_length = 70;
  const ExampleBuilder builder(example_options);
  const Dataset data = rows(37, {7, 20});
  auto settings = options(0);
  settings.packing = true;
  settings.num_epochs = 3;
  settings.accumulation = [](int64_t) { return 2; };
  settings.bad_sample_budget = 1;
  const auto describe = [](const StepBatch& batch) {
    std::string text = fmt::format("{} {}", batch.epoch, batch.position_after);
    for (const MicroBatch& micro : batch.micro)
      for (const Example& row : micro)
        text += ::testing::PrintToString(row.ids) + ::testing::PrintToString(row.sample_starts);
    return text;
  };
  BatchLoader whole(data, builder, settings);
  std::vector<std::pair<int64_t, int64_t>> places{{0, 0}};
  std::vector<std::string> steps;
  while (auto batch = whole.next()) {
    places.emplace_back(batch->epoch, batch->position_after);
    steps.push_back(describe(*batch));
  }
  settings.num_workers = 3;
  BatchLoader resumed(data, builder, settings);
  for (size_t step = 0; step < steps.size(); ++step) {
    resumed.seek(places[step].first, places[step].second, static_cast<int64_t>(step));
    for (size_t after = step; after < steps.size(); ++after)
      ASSERT_EQ(describe(*resumed.next()), steps[after]) << "from step " << step;
    ASSERT_FALSE(resumed.next());
  }
}

TEST_F(LoaderTest, TheNextRowTakesASkippedPlace) {
  auto settings = options(2);
  settings.num_epochs = 1;
  settings.shuffle = false;
  settings.bad_sample_budget = 0.5;
  settings.accumulation = [](int64_t) { return 4; };
  BatchLoader loader(rows(7, {1, 2}), builder_, settings);
  const auto first = loader.next(), second = loader.next();
  EXPECT_THAT(row_numbers(*first), ElementsAre(0, 3, 4, 5));
  EXPECT_EQ(first->position_after, 6);
  EXPECT_THAT(row_numbers(*second), ElementsAre(6));
  EXPECT_FALSE(loader.next());
}

TEST_F(LoaderTest, TooManyBadRowsStopTheRun) {
  auto settings = options(2);
  settings.bad_sample_budget = 0.05;
  BatchLoader loader(rows(20, {3, 9}), builder_, settings);
  EXPECT_THAT([&] { drain(loader, 5); },
              ThrowsMessage<UserError>(AllOf(HasSubstr("2 of 20 rows are unusable"), HasSubstr("broken.ppm"))));
}

TEST_F(LoaderTest, LongRowsAreCountedOnceAndNotAgainstTheBudget) {
  auto example_options = model_.options();
  example_options.max_length = 12;
  const ExampleBuilder builder(example_options);
  auto settings = options(2);
  settings.num_epochs = 2;
  settings.bad_sample_budget = 0;
  BatchLoader loader(rows(40), builder, settings);
  int64_t samples = 0;
  while (auto batch = loader.next()) samples += batch->samples;
  EXPECT_GT(loader.counts().too_long, 0);
  EXPECT_EQ(samples, 2 * (40 - loader.counts().too_long));

  example_options.over_length = OverLength::kError;
  const ExampleBuilder strict(example_options);
  BatchLoader stopped(rows(40), strict, settings);
  EXPECT_THAT([&] { drain(stopped); }, ThrowsMessage<UserError>(HasSubstr("longer than the limit of 12 tokens")));
}

TEST_F(LoaderTest, NothingToTrainOn) {
  auto example_options = model_.options();
  example_options.max_length = 3;
  const ExampleBuilder builder(example_options);
  BatchLoader loader(rows(5), builder, options(2));
  EXPECT_THAT([&] { loader.next(); }, ThrowsMessage<UserError>(HasSubstr("no row of the data set can be trained on")));
}

TEST_F(LoaderTest, LeavingEarlyStopsTheWorkers) {
  for (int i = 0; i < 20; ++i) {
    BatchLoader loader(rows(100), builder_, options(4));
    loader.next();
  }
}

}  // namespace
}  // namespace vlmtune
