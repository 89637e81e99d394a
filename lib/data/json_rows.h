// The text of one row to a Row: the dialects and the rules listed at Dataset.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "lib/data/dataset.h"
#include "lib/data/row_file.h"

namespace vlmtune {

struct RowContext {
  std::string place;                   // of the row, for errors
  std::filesystem::path image_folder;  // may be empty
  std::filesystem::path file_folder;
  RowFormat format = RowFormat::kAuto;
  bool needs_answer = true;
};

/// Errors: input_error that begins with context.place.
Row parse_row(const RowText& text, const RowContext& context);

/// The row's "id", or its place when it has none or is no JSON.
std::string parse_row_id(const RowText& text, const RowContext& context);

/// The offset of the first byte that is not UTF-8, or -1.
int64_t first_invalid_utf8(std::string_view text);

}  // namespace vlmtune
