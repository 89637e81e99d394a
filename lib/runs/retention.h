// Which checkpoints of a run stay. The newest and the best always do; order is by step number, never by file times.
#pragma once
#include <string>
#include <vector>

#include "lib/runs/checkpoint_list.h"

namespace vlmtune {

struct RetentionRule {
  enum class Kind {
    kNewestAndBest,  // the newest `keep_last` and the best `keep_best`
    kTotal,          // `keep_last` in all, the newest and the best `keep_best` first (transformers' save_total_limit)
    kLossDrop,       // once the loss has fallen by `loss_drop` since the oldest: as kNewestAndBest; before that, all
  };
  Kind kind = Kind::kNewestAndBest;
  int64_t keep_last = 3;  // 0 or less: remove nothing
  int64_t keep_best = 1;
  double loss_drop = 0.025;     // kLossDrop: a share of the oldest checkpoint's loss
  bool memory_warning = false;  // kLossDrop: memory ran short, keep the newest and the best one only
};

struct RetentionPlan {
  struct Kept {
    CheckpointInfo checkpoint;
    std::string reason;  // "newest", "best", "recent" or why nothing is removed
  };
  std::vector<Kept> keep;              // by step
  std::vector<CheckpointInfo> remove;  // by step; stale temporary folders last
  std::vector<SkippedEntry> skip;
  int64_t freed_bytes = 0;
};

/// Best: the lowest evaluation loss; when no checkpoint has one, the lowest training loss; equal losses: the newer.
RetentionPlan plan_retention(const CheckpointList& list, const RetentionRule& rule);

struct RetentionResult {
  std::vector<std::string> removed;
  std::vector<SkippedEntry> failed;  // checkpoints that could not be removed, and why
  int64_t freed_bytes = 0;
};

/// Removes what the plan says. The completion marker goes first, so that a half-removed checkpoint is never taken for a
/// whole one; a failure does not stop the others.
RetentionResult apply_retention(const RetentionPlan& plan);

}  // namespace vlmtune
