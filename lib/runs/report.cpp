#include "lib/runs/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/base/bytes.h"
#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/runs/metrics.h"
#include "lib/runs/report_page.h"
#include "lib/runs/run_directory.h"

namespace vlmtune {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// JSON that may stand inside a script element.
std::string script_json(const json& value) {
  std::string out;
  for (const char c : value.dump(-1, ' ', false, json::error_handler_t::replace))
    out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s >= 3600) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  return s >= 60 ? fmt::format("{} min {:02} s", s / 60, s % 60) : fmt::format("{:.1f} s", seconds);
}

/// The figures at the top that follow from the metrics.
std::vector<ReportFigure> summary(const MetricsLog& log) {
  std::vector<ReportFigure> figures;
  if (log.steps.empty()) return figures;
  double seconds = 0;
  int64_t tokens = 0, peak = 0, samples = 0;
  for (const auto& row : log.steps) {
    if (std::isfinite(row.step_seconds)) seconds += row.step_seconds;
    tokens += row.tokens;
    samples += row.samples;
    peak = std::max(peak, row.peak_memory_bytes);
  }
  figures.push_back({"Steps", fmt::format("{}", log.steps.back().step)});
  figures.push_back({"Samples", fmt::format("{}", samples)});
  figures.push_back({"Training loss", fmt::format("{:.4f}", log.steps.back().loss)});
  if (!log.evaluations.empty()) {
    const auto best = std::min_element(log.evaluations.begin(), log.evaluations.end(),
                                       [](const auto& a, const auto& b) { return a.eval_loss < b.eval_loss; });
    figures.push_back({"Evaluation loss", fmt::format("{:.4f}", log.evaluations.back().eval_loss)});
    if (best->step != log.evaluations.back().step)
      figures.push_back({"Best evaluation", fmt::format("{:.4f} at step {}", best->eval_loss, best->step)});
    for (const auto& [name, score] : log.evaluations.back().scores)
      figures.push_back({"Evaluation " + name, fmt::format("{:.4f}", score)});
  }
  figures.push_back({"Time in steps", duration_text(seconds)});
  if (seconds > 0)
    figures.push_back({"Tokens per second", fmt::format("{:.0f}", static_cast<double>(tokens) / seconds)});
  if (peak > 0) figures.push_back({"Peak memory", format_bytes(peak)});
  return figures;
}

/// [[step, value]...] of one column; a gap (null) where the value is no number.
template <typename Row, typename Number>
json column(const std::vector<Row>& rows, Number Row::*member) {
  json points = json::array();
  for (const auto& row : rows) points.push_back({row.step, row.*member});
  return points;
}

json chart(const char* title, const char* unit, const char* name, json points) {
  return {{"title", title}, {"unit", unit}, {"series", {{{"name", name}, {"points", std::move(points)}}}}};
}

json charts_of(const MetricsLog& log) {
  json charts = json::array();
  if (!log.steps.empty()) {
    json loss = chart("Loss", "", "training", column(log.steps, &StepMetrics::loss));
    if (!log.evaluations.empty())
      loss["series"].push_back(
          {{"name", "evaluation"}, {"points", column(log.evaluations, &EvalMetrics::eval_loss)}, {"marks", true}});
    charts.push_back(std::move(loss));
    charts.push_back(chart("Learning rate", "", "learning rate", column(log.steps, &StepMetrics::learning_rate)));
    charts.push_back(chart("Gradient norm", "", "before clipping", column(log.steps, &StepMetrics::grad_norm)));
    charts.push_back(chart("Peak memory", "B", "peak", column(log.steps, &StepMetrics::peak_memory_bytes)));
    charts.push_back(chart("Throughput", "tokens/s", "tokens", column(log.steps, &StepMetrics::tokens_per_second)));
    json similarity = json::array();
    for (const auto& row : log.steps)
      if (row.similarity) similarity.push_back({row.step, *row.similarity});
    if (!similarity.empty())
      charts.push_back(chart("Similarity", "", "mean cosine of pictures and their texts", std::move(similarity)));
    const auto scaled = [](const StepMetrics& row) { return std::isfinite(row.loss_scale) && row.loss_scale != 1; };
    if (std::any_of(log.steps.begin(), log.steps.end(), scaled))
      charts.push_back(chart("Loss scale", "", "loss scale", column(log.steps, &StepMetrics::loss_scale)));
  } else if (!log.evaluations.empty()) {
    charts.push_back(chart("Loss", "", "evaluation", column(log.evaluations, &EvalMetrics::eval_loss)));
  }
  for (auto& one : charts) {
    const auto title = one["title"].get<std::string>();
    one["from_zero"] = title == "Peak memory";
    one["smooth"] = log.steps.size() >= 20 && (title == "Loss" || title == "Gradient norm" || title == "Throughput");
  }
  return charts;
}

std::string figures_html(const std::vector<ReportFigure>& figures) {
  std::string out;
  for (const auto& [label, value] : figures)
    out += fmt::format("<div class=\"figure\"><dt>{}</dt><dd>{}</dd></div>\n", escape_html(label), escape_html(value));
  return out.empty() ? out : "<dl class=\"figures\">\n" + out + "</dl>\n";
}

std::string gallery_html(const std::vector<GalleryItem>& gallery) {
  if (gallery.empty()) return {};
  std::string out = "<h2>Pictures and their captions</h2>\n<div class=\"gallery\">\n";
  for (const auto& item : gallery) {
    out += fmt::format("<figure><img alt=\"\" loading=\"lazy\" src=\"{}\"><figcaption><p>{}</p>",
                       escape_html(item.image), escape_html(item.caption));
    if (!item.truth.empty()) out += fmt::format("<p class=\"truth\"><span>true</span> {}</p>", escape_html(item.truth));
    out += "</figcaption></figure>\n";
  }
  return out + "</div>\n";
}

std::string recipe_html(const fs::path& recipe) {
  if (!fs::exists(recipe)) return {};
  return fmt::format("<details><summary>Recipe</summary><pre>{}</pre></details>\n", escape_html(read_file(recipe)));
}

}  // namespace

void write_report(const fs::path& run_dir, const ReportOptions& options) {
  const RunDirectory run{run_dir};
  const auto log = read_metrics(run.metrics());
  auto name = fs::absolute(run_dir).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  const auto title = escape_html(options.title.empty() ? name.filename().string() : options.title);
  auto figures = options.figures;
  for (auto& figure : summary(log)) figures.push_back(std::move(figure));
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>\n{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
      title, kReportStyle);
  page += figures_html(figures);
  page += log.steps.empty() && log.evaluations.empty() ? "<p>No step has been logged yet.</p>\n"
                                                       : "<div id=\"charts\"></div>\n";
  page += gallery_html(options.gallery);
  page += recipe_html(run.recipe());
  page += fmt::format("<footer>vlmtune {}</footer>\n</main>\n", VLMTUNE_VERSION);
  page += fmt::format("<script>\nconst charts = {};\n{}</script>\n</body>\n</html>\n", script_json(charts_of(log)),
                      kReportScript);
  write_file_atomic(run.report(), page);
}

std::string image_data_uri(const fs::path& file) {
  const auto data = read_file(file);
  const std::string_view bytes = data;
  const char* type = bytes.starts_with("\x89PNG")                                                      ? "png"
                     : bytes.starts_with("\xff\xd8")                                                   ? "jpeg"
                     : bytes.starts_with("GIF8")                                                       ? "gif"
                     : bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP" ? "webp"
                     : bytes.starts_with("BM")                                                         ? "bmp"
                                                                                                       : nullptr;
  if (type == nullptr) throw input_error("{}: expected a PNG, JPEG, GIF, WebP or BMP image", file.string());
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out = fmt::format("data:image/{};base64,", type);
  for (size_t i = 0; i < data.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < data.size() ? static_cast<unsigned char>(data[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += i + k <= data.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace vlmtune
