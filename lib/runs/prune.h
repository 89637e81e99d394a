// prune-ckpt: shows which checkpoints of a run would stay and which would go, and removes them when told to.
#pragma once
#include <filesystem>
#include <string>

#include "lib/runs/retention.h"

namespace vlmtune {

struct PruneOptions {
  std::filesystem::path dir;  // a run directory, its checkpoints folder, or the output folder of another trainer
  int64_t keep_last = 3;      // 0: no limit
  int64_t keep_best = 1;
  bool apply = false;
};

struct PruneReport {
  std::filesystem::path folder;  // where the checkpoints are
  RetentionPlan plan;
  RetentionResult result;  // empty without apply; `failed` says what could not be removed
  bool applied = false;
};

/// Errors: input_error when `dir` is no readable folder, or its checkpoints folder is a symbolic link.
PruneReport prune_checkpoints(const PruneOptions& options);

/// A table for people.
std::string prune_table(const PruneReport& report);

/// {"keep": [names], "delete": [names], "skip": [{"name", "reason"}], "freed_bytes", "applied", "failed": [{"name", "reason"}]}
std::string prune_json(const PruneReport& report);

}  // namespace vlmtune
