// A file that is read at any place, without a map.
#pragma once
#include <cstdint>
#include <filesystem>

namespace vlmtune {

/// Thread-safe. Errors: input_error when the file is missing or unreadable.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(std::filesystem::path path);
  ~RandomAccessFile();
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;

  uint64_t size() const;

  /// The number of bytes read: fewer than asked for at the file's end.
  size_t read(uint64_t offset, char* data, size_t size) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace vlmtune
