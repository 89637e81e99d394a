// One data file: rows that are found by a scan and read back one at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vlmtune {

/// A picture that lies beside its row in the same file.
struct RowPicture {
  std::string name;    // as the file has it
  std::string source;  // what read_image_source takes
};

/// A row as it stands in its file.
struct RowText {
  std::string json;                    // an object
  uint64_t offset = 0;                 // of the JSON in the file
  std::vector<RowPicture> pictures;    // in the file's order
  std::optional<std::string> caption;  // text beside the JSON
};

/// Immutable; thread-safe.
class RowFile {
 public:
  virtual ~RowFile() = default;
  virtual int64_t size() const = 0;
  virtual const std::filesystem::path& path() const = 0;

  /// Length of row i's text in bytes, known without reading it.
  virtual int64_t row_bytes(int64_t i) const = 0;
  /// Whether the row has a picture, as far as the scan can tell.
  virtual bool has_image(int64_t i) const = 0;

  /// Errors: input_error when the file has changed.
  virtual RowText read(int64_t i) const = 0;
  /// Where row i stands, for people.
  virtual std::string place(int64_t i) const = 0;
};

/// The rows of a file, by its content: a JSON array, JSONL or a tar archive. Errors: input_error when it is missing, empty or
/// none of these.
std::unique_ptr<RowFile> open_row_file(const std::filesystem::path& path);

/// The file names that a pattern with braces stands for, as a shell expands it: a-{000..012}.tar, {train,extra}.jsonl.
/// A name without braces, or of a file that is there, stands for itself. Errors: usage_error for braces that do not close.
std::vector<std::filesystem::path> expand_braces(const std::string& pattern);

}  // namespace vlmtune
