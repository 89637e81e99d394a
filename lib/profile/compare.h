// Prediction against measurement, line by line.
#pragma once
#include <filesystem>
#include <string>

#include "lib/profile/memory_report.h"

namespace vlmtune {

/// A table of the peak, each category and each phase that both have: predicted, measured (RUN_DIR/memory.json), difference.
/// Errors: input_error when there is no such file.
std::string comparison_table(const MemoryReport& predicted, const std::filesystem::path& run_dir);

}  // namespace vlmtune
