// The layout of a run's output folder.
#pragma once
#include <filesystem>

#include "lib/base/folder_lock.h"

namespace vlmtune {

struct RunDirectory {
  std::filesystem::path root;

  std::filesystem::path recipe() const { return root / "recipe.json"; }
  std::filesystem::path log() const { return root / "log.txt"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path memory() const { return root / "memory.json"; }
  std::filesystem::path report() const { return root / "report.html"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path final_model() const { return root / "final"; }
  std::filesystem::path merged_model() const { return root / "merged"; }
};

/// Makes the folder and its checkpoints folder. Errors: io_error.
RunDirectory make_run_directory(const std::filesystem::path& root);

/// Held while a process trains into the folder; it goes with the process. Errors: io_error when another one holds it.
class RunLock {
 public:
  explicit RunLock(const RunDirectory& run);

 private:
  FolderLock lock_;
};

/// Removes what a killed run left half-written; for the holder of the lock.
void remove_stale_files(const RunDirectory& run);

}  // namespace vlmtune
