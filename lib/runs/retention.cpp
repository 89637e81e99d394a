#include "lib/runs/retention.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/runs/manifest.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// The loss by which all checkpoints of a list are compared.
std::optional<double> CheckpointInfo::*ranking_loss(const std::vector<CheckpointInfo>& checkpoints) {
  const bool evaluated = std::any_of(checkpoints.begin(), checkpoints.end(), [](const CheckpointInfo& checkpoint) {
    return checkpoint.eval_loss.has_value() && std::isfinite(*checkpoint.eval_loss);
  });
  return evaluated ? &CheckpointInfo::eval_loss : &CheckpointInfo::train_loss;
}

/// Indices of the `count` best checkpoints.
std::vector<size_t> best_checkpoints(const std::vector<CheckpointInfo>& checkpoints, int64_t count) {
  const auto loss = ranking_loss(checkpoints);
  std::vector<size_t> order;
  for (size_t i = checkpoints.size(); i-- > 0;)  // newest first, which a stable sort keeps among equals
    if ((checkpoints[i].*loss).has_value() && std::isfinite(*(checkpoints[i].*loss))) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return *(checkpoints[a].*loss) < *(checkpoints[b].*loss); });
  order.resize(std::min(order.size(), static_cast<size_t>(std::max<int64_t>(count, 0))));
  return order;
}

/// Whether the newest loss lies more than the share `drop` below the oldest one's.
bool has_loss_fallen(const std::vector<CheckpointInfo>& checkpoints, double drop) {
  const auto loss = ranking_loss(checkpoints);
  const CheckpointInfo *oldest = nullptr, *newest = nullptr;
  for (const auto& checkpoint : checkpoints) {
    if (!(checkpoint.*loss).has_value() || !std::isfinite(*(checkpoint.*loss))) continue;
    if (oldest == nullptr) oldest = &checkpoint;
    newest = &checkpoint;
  }
  if (oldest == nullptr) return false;
  return *(oldest->*loss) - *(newest->*loss) > drop * std::abs(*(oldest->*loss));
}

/// How many of the newest stay, and how many of the best.
struct Limits {
  int64_t last, best;
  const char* everything = nullptr;  // set: nothing is removed, and why
};

Limits limits_of(const std::vector<CheckpointInfo>& checkpoints, const RetentionRule& rule) {
  if (rule.kind == RetentionRule::Kind::kLossDrop && rule.memory_warning) return {1, 1};
  if (rule.keep_last <= 0) return {0, 0, "no limit"};
  if (rule.kind == RetentionRule::Kind::kLossDrop && !has_loss_fallen(checkpoints, rule.loss_drop))
    return {0, 0, "the loss has not fallen enough"};
  return {rule.keep_last, rule.keep_best};
}

/// Reasons to keep, by index; an empty text means that the checkpoint goes.
std::vector<std::string> reasons_to_keep(const std::vector<CheckpointInfo>& checkpoints, const RetentionRule& rule) {
  const auto limits = limits_of(checkpoints, rule);
  std::vector<std::string> reasons(checkpoints.size(), limits.everything != nullptr ? limits.everything : "");
  if (checkpoints.empty() || limits.everything != nullptr) return reasons;
  for (const size_t i : best_checkpoints(checkpoints, limits.best)) reasons[i] = "best";
  reasons.back() = reasons.back().empty() ? "newest" : "newest, best";
  const auto num_kept = [&] {
    return std::count_if(reasons.begin(), reasons.end(), [](const auto& reason) { return !reason.empty(); });
  };
  for (size_t age = 0; age < checkpoints.size(); ++age) {
    auto& reason = reasons[checkpoints.size() - 1 - age];
    const bool room =
        rule.kind == RetentionRule::Kind::kTotal ? num_kept() < limits.last : static_cast<int64_t>(age) < limits.last;
    if (room && reason.empty()) reason = "recent";
  }
  return reasons;
}

void remove_checkpoint(const CheckpointInfo& checkpoint) {
  if (fs::is_symlink(checkpoint.path)) throw input_error("has become a symbolic link");
  auto path = checkpoint.path;
  std::error_code error;
  if (checkpoint.marker ==
      kManifestName) {  // ours go out of the way: a removal that is killed is finished by the next run
    fs::rename(checkpoint.path, discarded_path(path), error);
    if (!error) path = discarded_path(path);
  }
  if (!checkpoint.marker.empty()) {
    fs::remove(path / checkpoint.marker, error);
    if (error) {
      const auto failure = error;
      if (path != checkpoint.path) fs::rename(path, checkpoint.path, error);
      throw fs::filesystem_error("remove", checkpoint.path, failure);
    }
    sync_directory(path);
  }
  fs::remove_all(path);
}

}  // namespace

RetentionPlan plan_retention(const CheckpointList& list, const RetentionRule& rule) {
  RetentionPlan plan;
  plan.skip = list.skipped;
  const auto reasons = reasons_to_keep(list.checkpoints, rule);
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i].empty()) {
      plan.remove.push_back(list.checkpoints[i]);
    } else {
      plan.keep.push_back({list.checkpoints[i], reasons[i]});
    }
  }
  plan.remove.insert(plan.remove.end(), list.stale.begin(), list.stale.end());
  for (const auto& checkpoint : plan.remove) plan.freed_bytes += checkpoint.bytes;
  return plan;
}

RetentionResult apply_retention(const RetentionPlan& plan) {
  RetentionResult result;
  std::set<fs::path> parents;
  for (const auto& checkpoint : plan.remove) {
    try {
      remove_checkpoint(checkpoint);
      result.removed.push_back(checkpoint.name);
      result.freed_bytes += checkpoint.bytes;
      parents.insert(checkpoint.path.parent_path());
    } catch (const fs::filesystem_error& failure) {
      result.failed.push_back({checkpoint.name, failure.code().message()});
    } catch (const std::exception& failure) {
      result.failed.push_back({checkpoint.name, failure.what()});
    }
  }
  for (const auto& parent : parents) sync_directory(parent);
  return result;
}

}  // namespace vlmtune
