#include "lib/runs/checkpoint_list.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <tuple>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/runs/manifest.h"

namespace vlmtune {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr std::string_view kTrainerState = "trainer_state.json";

/// Bytes that go when the folder goes: a file with a second hard link elsewhere stays on the disk.
int64_t freed_bytes(const fs::path& folder) {
  int64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code skipped;
    if (entry->is_symlink(skipped) || !entry->is_regular_file(skipped)) continue;
    if (entry->hard_link_count(skipped) == 1) total += static_cast<int64_t>(entry->file_size(skipped));
  }
  return total;
}

/// Hugging Face's trainer writes trainer_state.json last; its log holds the losses up to this step.
void read_trainer_state(CheckpointInfo& info) {
  const auto state = json::parse(read_file(info.path / kTrainerState), nullptr, false);
  if (!state.is_object()) throw input_error("{} is broken", kTrainerState);
  const auto has_weights = [&] {
    for (const auto& entry : fs::directory_iterator(info.path)) {
      const auto extension = entry.path().extension();
      if (entry.is_regular_file() && (extension == ".safetensors" || extension == ".bin") && entry.file_size() > 0)
        return true;
    }
    return false;
  };
  if (!has_weights()) throw input_error("no weights");
  info.marker = kTrainerState;
  const auto history = state.find("log_history");
  if (history == state.end() || !history->is_array()) return;
  for (const auto& line : *history) {
    if (!line.is_object()) continue;
    const auto step = line.find("step");
    if (step == line.end() || !step->is_number() || step->get<double>() > static_cast<double>(info.step)) continue;
    if (const auto loss = line.find("loss"); loss != line.end() && loss->is_number())
      info.train_loss = loss->get<double>();
    if (const auto loss = line.find("eval_loss");
        loss != line.end() && loss->is_number() && step->get<double>() == static_cast<double>(info.step))
      info.eval_loss = loss->get<double>();
  }
}

/// Sorts one entry of the folder into `list`.
void classify(const fs::directory_entry& entry, CheckpointList& list) {
  CheckpointInfo info{entry.path().filename().string(), entry.path(), 0, 0, {}, {}, {}};
  const auto skip = [&](std::string reason) { list.skipped.push_back({info.name, std::move(reason)}); };
  if (entry.is_symlink()) return skip("a symbolic link");
  if (!entry.is_directory()) return;
  if (is_temporary_checkpoint(info.name)) {
    if (is_being_written(entry.path())) return skip("being written");
    info.bytes = freed_bytes(info.path);
    list.stale.push_back(std::move(info));
    return;
  }
  const auto ours = parse_checkpoint_step(info.name, "step-");
  const auto trainers = parse_checkpoint_step(info.name, "checkpoint-");
  if (!ours && !trainers) return skip("not a checkpoint's name");
  try {
    info.step = ours ? *ours : *trainers;
    if (ours) {
      const auto manifest = verify_checkpoint(info.path, VerifyDepth::kSizes);
      if (manifest.step != info.step) return skip(fmt::format("its manifest is of step {}", manifest.step));
      info.marker = kManifestName;
      info.eval_loss = manifest.eval_loss;
      info.train_loss = manifest.train_loss;
    } else {
      read_trainer_state(info);
    }
  } catch (const std::exception& failure) {
    return skip(fmt::format("half-written or damaged: {}", failure.what()));
  }
  info.bytes = freed_bytes(info.path);
  list.checkpoints.push_back(std::move(info));
}

}  // namespace

std::optional<int64_t> parse_checkpoint_step(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.empty() || name.front() < '0' || name.front() > '9') return std::nullopt;  // from_chars would take a sign
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(step) : std::nullopt;
}

CheckpointList list_checkpoints(const fs::path& folder) {
  CheckpointList list;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) classify(*entry, list);
  if (error) throw input_error("{}: cannot be read ({})", folder.string(), error.message());
  const auto by_step = [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return std::tie(a.step, a.name) < std::tie(b.step, b.name);
  };
  std::sort(list.checkpoints.begin(), list.checkpoints.end(), by_step);
  std::sort(list.stale.begin(), list.stale.end(), by_step);
  std::sort(list.skipped.begin(), list.skipped.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return list;
}

}  // namespace vlmtune
