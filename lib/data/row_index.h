// Where the rows of a JSON array or of JSONL begin: one scan, 8 bytes a row.
#pragma once
#include <string_view>

#include "lib/base/random_access_file.h"
#include "lib/data/row_file.h"

namespace vlmtune {

class MappedFile;

/// The rows of one file.
class RowIndex : public RowFile {
 public:
  /// Errors: input_error when the file is missing, empty, or neither a JSON array of rows nor JSONL.
  explicit RowIndex(std::filesystem::path path);

  int64_t size() const override { return static_cast<int64_t>(starts_.size()); }
  const std::filesystem::path& path() const override { return path_; }

  /// Bytes from the start of row i to the start of the next.
  int64_t row_bytes(int64_t i) const override;
  bool has_image(int64_t i) const override { return (starts_[static_cast<size_t>(i)] & kImageBit) != 0; }

  /// The row's JSON, without what separates it from the next. Errors: input_error when the file has shrunk.
  RowText read(int64_t i) const override;

  /// file:line or file#index.
  std::string place(int64_t i) const override;

 private:
  static constexpr uint64_t kImageBit = uint64_t{1} << 63;

  /// Offset of row i in the file.
  uint64_t offset(int64_t i) const { return starts_[static_cast<size_t>(i)] & ~kImageBit; }
  void scan(const MappedFile& map);
  void scan_lines(std::string_view content, size_t at);
  void scan_array(std::string_view content, size_t at);
  void add(std::string_view content, size_t begin, size_t end);
  void forget_scanned(size_t end);

  std::filesystem::path path_;
  RandomAccessFile file_;
  bool lines_ = false;                  // JSONL
  std::vector<uint64_t> starts_;        // offset, and kImageBit
  uint64_t end_ = 0;                    // of the last row
  const MappedFile* map_ = nullptr;     // while scanning
  size_t forgotten_ = 0;                // bytes of the map that are no longer held in memory
  std::vector<int64_t> blanks_before_;  // for each blank line: the number of rows before it
};

}  // namespace vlmtune
