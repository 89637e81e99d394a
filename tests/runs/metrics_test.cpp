// metrics.jsonl and report.html.
#include "lib/runs/metrics.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "lib/runs/report.h"
#include "lib/runs/run_directory.h"
#include "tests/runs/runs_fixture.h"

namespace vlmtune {
namespace {

using testing::HasSubstr;
using testing::Not;

StepMetrics row_of(int64_t step) {
  StepMetrics row;
  row.step = step;
  row.epoch = 0.25 * static_cast<double>(step);
  row.loss = 3.0 / static_cast<double>(step);
  row.learning_rate = 1e-3;
  row.grad_norm = 0.5;
  row.samples = 8;
  row.tokens = 1000;
  row.label_tokens = 300;
  row.image_tokens = 576;
  row.step_seconds = 0.5;
  row.tokens_per_second = 2000;
  row.peak_memory_bytes = 1'500'000'000;
  row.resident_bytes = 2'000'000'000;
  return row;
}

class MetricsTest : public RunsTest {
 protected:
  fs::path path() const { return folder_ / "metrics.jsonl"; }
};

TEST_F(MetricsTest, LinesHoldTheContractsKeys) {
  MetricsWriter writer(path());
  writer.append(row_of(1));
  writer.append(EvalMetrics{1, 2.5, {}});
  const auto text = read(path());
  EXPECT_TRUE(
      text.starts_with(R"({"step":1,"epoch":0.25,"loss":3.0,"learning_rate":0.001,"grad_norm":0.5,"loss_scale":1.0,)"
                       R"("samples":8,"tokens":1000,"label_tokens":300,"image_tokens":576,"step_seconds":0.5,)"
                       R"("tokens_per_second":2000.0,"peak_memory_bytes":1500000000,"resident_bytes":2000000000})"
                       "\n"))
      << text;
  EXPECT_TRUE(text.ends_with("{\"step\":1,\"eval_loss\":2.5}\n")) << "on disk at once, without loss";
}

TEST_F(MetricsTest, ReadsBackEqual) {
  std::vector<StepMetrics> rows;
  {
    MetricsWriter writer(path());
    for (int step = 1; step <= 5; ++step) writer.append(rows.emplace_back(row_of(step)));
    writer.append(EvalMetrics{5, 0.1, {{"anls", 0.5}}});
  }
  const auto log = read_metrics(path());
  EXPECT_EQ(log.steps, rows);
  EXPECT_EQ(log.evaluations, (std::vector<EvalMetrics>{{5, 0.1, {{"anls", 0.5}}}}));
  EXPECT_TRUE(read_metrics(folder_ / "absent").steps.empty());
}

TEST_F(MetricsTest, NotANumberIsNull) {
  auto row = row_of(1);
  row.loss = std::nan("");
  row.grad_norm = INFINITY;
  MetricsWriter(path()).append(row);
  EXPECT_THAT(read(path()), HasSubstr("\"loss\":null"));
  ASSERT_EQ(read_metrics(path()).steps.size(), 1U);
  EXPECT_TRUE(std::isnan(read_metrics(path()).steps[0].loss));
}

TEST_F(MetricsTest, ResumingDropsLaterStepsAndTheHalfWrittenLine) {
  {
    MetricsWriter writer(path());
    for (int step = 1; step <= 4; ++step) {
      writer.append(row_of(step));
      writer.append(EvalMetrics{step, 1, {}});
    }
  }
  const auto whole = read(path());
  std::ofstream(path(), std::ios::app) << R"({"step":5,"epo)";
  truncate_metrics(path(), 2);
  EXPECT_EQ(read(path()), whole.substr(0, whole.find("{\"step\":3")));
  MetricsWriter(path()).append(row_of(3));
  EXPECT_EQ(read_metrics(path()).steps.back().step, 3);
  truncate_metrics(path(), 0);
  EXPECT_EQ(read(path()), "");
  truncate_metrics(folder_ / "absent", 3);
  EXPECT_FALSE(fs::exists(folder_ / "absent"));
}

TEST_F(MetricsTest, WholeLineWithoutItsNewlineIsHalfWritten) {
  write("metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}");
  truncate_metrics(path(), 9);
  EXPECT_EQ(read(path()), "{\"step\":1,\"loss\":1}\n") << "a next line would run into it";
}

TEST_F(MetricsTest, FullDiskLeavesWholeLinesOnly) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{400, 400};  // the first line fits, the second only in part
    ::setrlimit(RLIMIT_FSIZE, &limit);
    MetricsWriter writer(path());
    writer.append(row_of(1));
    try {
      writer.append(row_of(2));
    } catch (const UserError& error) {
      ::_exit(error.code() == ExitCode::kIo ? 42 : 1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_TRUE(read(path()).ends_with("}\n"));
  EXPECT_EQ(read_metrics(path()).steps.size(), 1U);
}

TEST_F(MetricsTest, UnwritableFileIsAnIoError) {
  EXPECT_EQ(error_of([&] { MetricsWriter writer(folder_ / "no/metrics.jsonl"); }).code(), ExitCode::kIo);
}

TEST_F(MetricsTest, RunDirectoryLayout) {
  const auto run = make_run_directory(folder_ / "out");
  EXPECT_TRUE(fs::is_directory(run.checkpoints()));
  EXPECT_EQ(run.metrics(), folder_ / "out/metrics.jsonl");
  write("file", "");
  EXPECT_EQ(error_of([&] { make_run_directory(folder_ / "file"); }).code(), ExitCode::kIo);
}

TEST_F(MetricsTest, ReportStandsAlone) {
  {
    MetricsWriter writer(path());
    for (int step = 1; step <= 30; ++step) writer.append(row_of(step));
    writer.append(EvalMetrics{30, 0.25, {}});
  }
  write("recipe.json", R"({"model": {"path": "<b>&"}})");
  ReportOptions options;
  options.title = "A <run>";
  options.figures = {{"Held-out loss", "2.31"}};
  options.gallery = {{"data:image/png;base64,AAAA", "a cat </script>", "two cats"}};
  write_report(folder_, options);
  const auto page = read(folder_ / "report.html");
  EXPECT_THAT(page, HasSubstr("<title>A &lt;run&gt;</title>"));
  EXPECT_THAT(page, HasSubstr("a cat &lt;/script&gt;"));
  EXPECT_THAT(page, HasSubstr("two cats"));
  EXPECT_THAT(page, HasSubstr("Held-out loss"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;&amp;"));
  EXPECT_THAT(page, HasSubstr("\"Peak memory\""));
  EXPECT_THAT(page, HasSubstr("[30,0.25]"));
  EXPECT_THAT(page, Not(HasSubstr("src=\"http")));
  EXPECT_THAT(page, Not(HasSubstr("href=")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
}

TEST_F(MetricsTest, ReportOfARunWithoutSteps) {
  write_report(folder_);
  EXPECT_THAT(read(folder_ / "report.html"), HasSubstr("No step has been logged yet"));
}

TEST_F(MetricsTest, ImageDataUri) {
  EXPECT_EQ(image_data_uri(write("a", "BM")), "data:image/bmp;base64,Qk0=");
  EXPECT_EQ(image_data_uri(write("a", "BM1")), "data:image/bmp;base64,Qk0x");
  EXPECT_EQ(image_data_uri(write("a", std::string("\xff\xd8\xff\x00", 4))), "data:image/jpeg;base64,/9j/AA==");
  EXPECT_EQ(error_of([&] { image_data_uri(write("a", "text")); }).code(), ExitCode::kInput);
  EXPECT_EQ(error_of([&] { image_data_uri(write("a", "RIFF")); }).code(), ExitCode::kInput);
}

}  // namespace
}  // namespace vlmtune
