#include "lib/runs/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/base/log.h"

namespace vlmtune {
namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
namespace {

constexpr std::string_view kEvalPrefix = "eval_";

/// Calls visit(key, member) for every number of a line.
template <typename Metrics, typename Visit>
void visit_numbers(Metrics& m, Visit visit) {
  visit("step", m.step);
  visit("epoch", m.epoch);
  visit("loss", m.loss);
  visit("learning_rate", m.learning_rate);
  visit("grad_norm", m.grad_norm);
  visit("loss_scale", m.loss_scale);
  visit("samples", m.samples);
  visit("tokens", m.tokens);
  visit("label_tokens", m.label_tokens);
  visit("image_tokens", m.image_tokens);
  visit("step_seconds", m.step_seconds);
  visit("tokens_per_second", m.tokens_per_second);
  visit("peak_memory_bytes", m.peak_memory_bytes);
  visit("resident_bytes", m.resident_bytes);
}

void read_number(const json& line, const char* key, double& number) {
  const auto found = line.find(key);
  number = found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
}
void read_number(const json& line, const char* key, int64_t& number) {
  const auto found = line.find(key);
  number = found != line.end() && found->is_number() ? found->get<int64_t>() : 0;
}

/// Calls visit(line, parsed) for every whole line that is a JSON object with a step; returns how many lines are not.
template <typename Visit>
int visit_lines(std::string_view text, Visit visit) {
  int num_broken = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    const auto parsed = json::parse(line.begin(), line.end(), nullptr, false);
    if (end != std::string_view::npos && parsed.is_object() && parsed.contains("step") && parsed["step"].is_number()) {
      visit(text.substr(0, end + 1), parsed);
    } else {
      ++num_broken;
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return num_broken;
}

}  // namespace

MetricsWriter::MetricsWriter(fs::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw io_error("{}: cannot be opened for writing ({})", path_.string(), std::strerror(errno));
}

MetricsWriter::~MetricsWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsWriter::append_line(const std::string& line) {
  struct stat before {};
  const bool known = ::fstat(descriptor_, &before) == 0;
  for (size_t done = 0; done < line.size();) {
    const ssize_t put = ::write(descriptor_, line.data() + done, line.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      if (known && done > 0 && ::ftruncate(descriptor_, before.st_size) != 0)
        log_warning("{}: a half-written line stays at the end", path_.string());
      throw io_error("{}: cannot be written ({})", path_.string(), std::strerror(error));
    }
    done += static_cast<size_t>(put);
  }
}

void MetricsWriter::append(const StepMetrics& metrics) {
  ordered_json line;
  visit_numbers(metrics, [&](const char* key, auto number) { line[key] = number; });  // NaN becomes null
  if (metrics.similarity) line["similarity"] = *metrics.similarity;
  append_line(line.dump() + "\n");
}

void MetricsWriter::append(const EvalMetrics& metrics) {
  ordered_json line = {{"step", metrics.step}, {"eval_loss", metrics.eval_loss}};
  for (const auto& [name, score] : metrics.scores) line[std::string(kEvalPrefix) + name] = score;
  append_line(line.dump() + "\n");
}

void truncate_metrics(const fs::path& path, int64_t step) {
  if (!fs::exists(path)) return;
  std::string kept;
  const auto text = read_file(path);
  const int num_broken = visit_lines(text, [&](std::string_view line, const json& parsed) {
    if (parsed["step"].get<double>() <= static_cast<double>(step)) kept += line;
  });
  if (num_broken > 1) log_warning("{}: {} broken lines are dropped", path.string(), num_broken);
  if (kept != text) write_file_atomic(path, kept);
}

MetricsLog read_metrics(const fs::path& path) {
  MetricsLog log;
  if (!fs::exists(path)) return log;
  visit_lines(read_file(path), [&](std::string_view, const json& parsed) {
    if (parsed.contains("loss")) {
      auto& row = log.steps.emplace_back();
      visit_numbers(row, [&](const char* key, auto& number) { read_number(parsed, key, number); });
      if (parsed.contains("similarity")) read_number(parsed, "similarity", row.similarity.emplace());
    } else if (parsed.contains("eval_loss")) {
      auto& row = log.evaluations.emplace_back();
      read_number(parsed, "step", row.step);
      for (const auto& [key, value] : parsed.items()) {
        if (key == "eval_loss" || !key.starts_with(kEvalPrefix) || !value.is_number()) continue;
        row.scores.emplace_back(key.substr(kEvalPrefix.size()), value.get<double>());
      }
      read_number(parsed, "eval_loss", row.eval_loss);
    }
  });
  return log;
}

}  // namespace vlmtune
