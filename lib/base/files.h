// Files that are either whole or absent: read, map, and write through a temporary name with fsync and rename.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace vlmtune {

/// The whole file. Errors: input_error when it is missing or unreadable.
std::string read_file(const std::filesystem::path& path);

/// Writes `data` to `path` so that the name holds either the old or the new content. Errors: io_error.
void write_file_atomic(const std::filesystem::path& path, std::string_view data);

/// Removes what killed writers of `path` have left beside it.
void remove_stale_temporaries(const std::filesystem::path& path);

/// fsync of a folder, so that names made in it survive a power cut.
void sync_directory(const std::filesystem::path& path);

/// Lower-case hex SHA-256 of bytes or of a file's content.
std::string sha256_hex(std::string_view data);
std::string sha256_file(const std::filesystem::path& path);

/// Lets go of the whole pages of a range of a mapped file; they are read again when next touched.
void drop_pages(const void* data, size_t bytes);
/// Has a range of a mapped file read ahead, without waiting.
void prefetch_pages(const void* data, size_t bytes);

/// Read-only memory map of a file. Errors: input_error when it is missing or unreadable.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }
  /// Drops the pages of a range from memory; they are read again when touched.
  void drop(size_t offset, size_t length) const;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// A file being written in pieces under a temporary name; `commit` syncs it and gives it its final name.
/// A writer that is destroyed without commit leaves nothing behind. Errors: io_error.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace vlmtune
