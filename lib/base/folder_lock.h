// A claim on a folder against other processes.
#pragma once
#include <filesystem>

namespace vlmtune {

/// Goes with the process. A file system without locks lets everybody in.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& dir);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Whether the folder is this process's now; false while another one has it.
  bool acquire();

 private:
  int descriptor_ = -1;
};

}  // namespace vlmtune
