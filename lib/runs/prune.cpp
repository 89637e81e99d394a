#include "lib/runs/prune.h"

#include <nlohmann/json.hpp>

#include "lib/base/bytes.h"
#include "lib/base/errors.h"

namespace vlmtune {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

fs::path checkpoints_folder(const fs::path& dir) {
  if (!fs::is_directory(dir)) throw input_error("{}: is no folder", dir.string());
  const auto inner = dir / "checkpoints";
  if (fs::is_symlink(inner))
    throw input_error("{}: is a symbolic link, give the folder it leads to when that is meant", inner.string());
  return fs::is_directory(inner) ? inner : dir;
}

std::string loss_text(std::optional<double> loss) { return loss ? fmt::format("{:.4f}", *loss) : "-"; }

std::string row(const CheckpointInfo& checkpoint, std::string_view what, std::string_view reason) {
  return fmt::format("{:<24} {:>10} {:>10} {:>10}  {:<7} {}\n", checkpoint.name, loss_text(checkpoint.eval_loss),
                     loss_text(checkpoint.train_loss), format_bytes(checkpoint.bytes), what, reason);
}

json entries(const std::vector<SkippedEntry>& list) {
  json array = json::array();
  for (const auto& entry : list) array.push_back({{"name", entry.name}, {"reason", entry.reason}});
  return array;
}

}  // namespace

PruneReport prune_checkpoints(const PruneOptions& options) {
  PruneReport report;
  report.folder = checkpoints_folder(options.dir);
  RetentionRule rule;
  rule.keep_last = options.keep_last;
  rule.keep_best = options.keep_best;
  report.plan = plan_retention(list_checkpoints(report.folder), rule);
  report.applied = options.apply;
  if (options.apply) report.result = apply_retention(report.plan);
  return report;
}

std::string prune_table(const PruneReport& report) {
  const auto& plan = report.plan;
  std::string text = fmt::format("{}\n{:<24} {:>10} {:>10} {:>10}\n", report.folder.string(), "checkpoint", "eval loss",
                                 "train loss", "size");
  for (const auto& [checkpoint, reason] : plan.keep) text += row(checkpoint, "keep", reason);
  for (const auto& checkpoint : plan.remove)
    text += row(checkpoint, "delete", checkpoint.marker.empty() ? "left by a writer that is gone" : "");
  for (const auto& [name, reason] : plan.skip)
    text += fmt::format("{:<24} {:>32}  {:<7} {}\n", name, "", "skip", reason);
  if (!report.applied) {
    text += plan.remove.empty() ? "nothing to delete\n"
                                : fmt::format("{} would be freed; --apply deletes\n", format_bytes(plan.freed_bytes));
    return text;
  }
  text += fmt::format("{} freed\n", format_bytes(report.result.freed_bytes));
  for (const auto& [name, reason] : report.result.failed)
    text += fmt::format("{} could not be deleted: {}\n", name, reason);
  return text;
}

std::string prune_json(const PruneReport& report) {
  json document = {{"keep", json::array()}, {"delete", json::array()}};
  for (const auto& kept : report.plan.keep) document["keep"].push_back(kept.checkpoint.name);
  for (const auto& checkpoint : report.plan.remove) document["delete"].push_back(checkpoint.name);
  document["skip"] = entries(report.plan.skip);
  document["freed_bytes"] = report.applied ? report.result.freed_bytes : report.plan.freed_bytes;
  document["applied"] = report.applied;
  document["failed"] = entries(report.result.failed);
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace vlmtune
