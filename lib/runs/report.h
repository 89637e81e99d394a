// report.html of a run: curves, recipe and sample pictures in one file that needs nothing else.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace vlmtune {

/// One picture with what the model says about it.
struct GalleryItem {
  std::string image;    // data URI, e.g. "data:image/jpeg;base64,..."
  std::string caption;  // the model's
  std::string truth;    // the true one; may be empty
};

/// A figure worth showing at the top, e.g. {"Held-out loss", "2.31 (3.17 with another picture)"}.
struct ReportFigure {
  std::string label, value;
};

struct ReportOptions {
  std::string title;                  // empty: the run directory's name
  std::vector<ReportFigure> figures;  // shown beside those taken from the metrics
  std::vector<GalleryItem> gallery;
};

/// Writes run_dir/report.html from metrics.jsonl and recipe.json there (either may be missing). Errors: io_error.
void write_report(const std::filesystem::path& run_dir, const ReportOptions& options = {});

/// "data:image/png;base64,..." of an image file, its type told from its first bytes. Errors: input_error.
std::string image_data_uri(const std::filesystem::path& file);

}  // namespace vlmtune
