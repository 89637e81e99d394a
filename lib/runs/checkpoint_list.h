// What stands in a folder of checkpoints: ours (step-000500) and those of Hugging Face's trainer (checkpoint-500).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

struct CheckpointInfo {
  std::string name;
  std::filesystem::path path;
  int64_t step = 0;
  int64_t bytes = 0;        // what its removal frees
  std::string_view marker;  // the file that makes it whole: removed first
  std::optional<double> eval_loss, train_loss;
};

struct SkippedEntry {
  std::string name, reason;
};

struct CheckpointList {
  std::vector<CheckpointInfo> checkpoints;  // by step, then name
  std::vector<CheckpointInfo> stale;        // temporary folders of writers that are gone
  std::vector<SkippedEntry> skipped;        // folders and links that are no whole checkpoint: never counted or removed
};

/// The number in `name` when it is exactly `prefix` and decimal digits.
std::optional<int64_t> parse_checkpoint_step(std::string_view name, std::string_view prefix);

/// Errors: input_error when `folder` cannot be read.
CheckpointList list_checkpoints(const std::filesystem::path& folder);

}  // namespace vlmtune
