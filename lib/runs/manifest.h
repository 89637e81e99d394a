// A checkpoint folder: written under a temporary name, sealed by MANIFEST.json, then given its name. A folder without
// a matching manifest is no checkpoint, whatever it holds.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace vlmtune {

inline constexpr std::string_view kManifestName = "MANIFEST.json";

struct ManifestFile {
  int64_t size = 0;
  std::string sha256;
  bool operator==(const ManifestFile&) const = default;
};

/// MANIFEST.json: the step, every file with its size and SHA-256, and the losses that rank the checkpoint.
struct Manifest {
  int64_t step = 0;
  std::map<std::string, ManifestFile> files;  // by path relative to the folder
  std::optional<double> eval_loss, train_loss;
  bool operator==(const Manifest&) const = default;
};

/// "step-000500".
std::string checkpoint_name(int64_t step);

/// The manifest of a folder. Errors: input_error when it is missing, broken, or names a path outside the folder.
Manifest read_manifest(const std::filesystem::path& folder);

enum class VerifyDepth { kSizes, kHashes };

/// Compares the folder's files with its manifest, which it returns. Errors: input_error naming the first file that is
/// missing or differs.
Manifest verify_checkpoint(const std::filesystem::path& folder, VerifyDepth depth);

/// One checkpoint being written:
///   CheckpointWriter writer(run / "checkpoints", step);   // makes checkpoints/.tmp-step-000500
///   ... write files into writer.path() ...
///   writer.seal(train_loss, eval_loss);                   // now it is checkpoints/step-000500
/// Without seal nothing stays. Errors: io_error.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path checkpoints, int64_t step);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  const std::filesystem::path& path() const { return temporary_; }
  /// Syncs every file, writes the manifest last, renames, and syncs the parent. Returns the final folder.
  std::filesystem::path seal(std::optional<double> train_loss, std::optional<double> eval_loss);

 private:
  std::filesystem::path checkpoints_, temporary_;
  int64_t step_;
  int lock_ = -1;  // held while writing, so that pruning can tell a living writer from a dead one's remains
};

/// Where a checkpoint stands while it is being removed: remove_stale_checkpoints finishes what was interrupted.
std::filesystem::path discarded_path(const std::filesystem::path& checkpoint);

/// Whether `name` is one of CheckpointWriter's temporary folders, or a discarded checkpoint.
bool is_temporary_checkpoint(std::string_view name);

/// Whether a living process is writing this temporary folder.
bool is_being_written(const std::filesystem::path& folder);

/// Removes what killed writers left in `checkpoints`.
void remove_stale_checkpoints(const std::filesystem::path& checkpoints);

struct SealedCheckpoint {
  std::filesystem::path path;
  Manifest manifest;
};

/// The newest checkpoint whose files match their hashes, or nothing. Half-written and damaged ones are skipped with a
/// warning; order is by step number.
std::optional<SealedCheckpoint> newest_checkpoint(const std::filesystem::path& checkpoints);

}  // namespace vlmtune
