// metrics.jsonl: one line per optimizer step, one per evaluation.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vlmtune {

struct StepMetrics {
  int64_t step = 0;                  // from 1
  double epoch = 0;                  // passes over the data so far
  double loss = 0;                   // before the update: mean over the supervised tokens of the whole step
  double learning_rate = 0;          // used in this step
  double grad_norm = 0;              // before clipping
  std::optional<double> similarity;  // mean cosine of pictures and their texts; with a similarity head
  double loss_scale = 1;
  int64_t samples = 0;  // rows of the step
  int64_t tokens = 0;
  int64_t label_tokens = 0;
  int64_t image_tokens = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  int64_t peak_memory_bytes = 0;  // allocated on the device
  int64_t resident_bytes = 0;     // of the process, after the step
  bool operator==(const StepMetrics&) const = default;
};

struct EvalMetrics {
  int64_t step = 0;
  double eval_loss = 0;
  std::vector<std::pair<std::string, double>> scores;  // of answers, in the file with "eval_" in front of their names
  bool operator==(const EvalMetrics&) const = default;
};

/// Appends lines, each whole or not at all. Errors: io_error.
class MetricsWriter {
 public:
  explicit MetricsWriter(std::filesystem::path path);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  void append(const StepMetrics& metrics);
  void append(const EvalMetrics& metrics);

 private:
  void append_line(const std::string& line);
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Before a run goes on from `step`: drops the lines of later steps and what a killed writer left half-written.
/// A missing file is fine. Errors: io_error.
void truncate_metrics(const std::filesystem::path& path, int64_t step);

struct MetricsLog {
  std::vector<StepMetrics> steps;
  std::vector<EvalMetrics> evaluations;
};

/// Lines that are no JSON are left out; a missing file is an empty log; missing and null numbers read as NaN or 0.
MetricsLog read_metrics(const std::filesystem::path& path);

}  // namespace vlmtune
