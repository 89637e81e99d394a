#include "lib/runs/manifest.h"

#include <fcntl.h>
#include <stdio.h>  // renameat2
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/base/log.h"
#include "lib/runs/checkpoint_list.h"

namespace vlmtune {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr std::string_view kTemporaryPrefix = ".tmp-", kDiscardedSuffix = "-old";

void sync_file(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) throw io_error("{}: cannot be synced ({})", path.string(), std::strerror(error));
}

/// An open folder that is locked for this process, or -1 when it is missing or somebody else's.
int lock_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  return -1;
}

void set_loss(json& document, const char* key, std::optional<double> loss) {
  if (loss && std::isfinite(*loss)) document[key] = *loss;
}

std::optional<double> get_loss(const json& document, const char* key) {
  const auto found = document.find(key);
  if (found == document.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// Whether a manifest's name stays inside the folder.
bool is_inside(const fs::path& name) {
  return !name.empty() && name.is_relative() && std::find(name.begin(), name.end(), "..") == name.end();
}

/// Syncs everything in `folder` and lists its files.
json sync_and_list(const fs::path& folder) {
  json files = json::object();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) {
      sync_directory(entry.path());
      continue;
    }
    const auto name = entry.path().lexically_relative(folder).generic_string();
    if (name == kManifestName) continue;
    sync_file(entry.path());
    files[name] = {{"size", entry.file_size()}, {"sha256", sha256_file(entry.path())}};
  }
  return files;
}

/// Gives the finished folder its name. A folder of that name, left by an earlier run, changes places with it.
void put_in_place(const fs::path& temporary, const fs::path& target) {
  if (::rename(temporary.c_str(), target.c_str()) == 0) return;
  if (errno == ENOTEMPTY || errno == EEXIST) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      fs::remove_all(temporary);
      return;
    }
    // No exchange on this file system: for a moment neither stands under the name, and the one before is the newest.
    const auto old = discarded_path(target);
    if (::rename(target.c_str(), old.c_str()) == 0 && ::rename(temporary.c_str(), target.c_str()) == 0) {
      fs::remove_all(old);
      return;
    }
  }
  throw io_error("{}: cannot be renamed into place ({})", target.string(), std::strerror(errno));
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:06}", step); }

Manifest read_manifest(const fs::path& folder) {
  const auto path = folder / kManifestName;
  const auto document = json::parse(read_file(path), nullptr, false);
  const auto broken = [&](std::string_view what) {
    return input_error("{}: {}, expected {{\"step\", \"files\": {{name: {{\"size\", \"sha256\"}}}}}}", path.string(),
                       what);
  };
  if (!document.is_object()) throw broken("is no JSON object");
  Manifest manifest;
  if (!document.contains("step") || !document["step"].is_number_integer()) throw broken("/step is no integer");
  if (!document.contains("files") || !document["files"].is_object()) throw broken("/files is no object");
  manifest.step = document["step"].get<int64_t>();
  for (const auto& [name, entry] : document["files"].items()) {
    if (!is_inside(name)) throw broken(fmt::format("/files/{} is no path inside the folder", name));
    if (!entry.is_object() || !entry.contains("size") || !entry["size"].is_number_integer() ||
        !entry.contains("sha256") || !entry["sha256"].is_string())
      throw broken(fmt::format("/files/{} is incomplete", name));
    manifest.files[name] = {entry["size"].get<int64_t>(), entry["sha256"].get<std::string>()};
  }
  manifest.eval_loss = get_loss(document, "eval_loss");
  manifest.train_loss = get_loss(document, "train_loss");
  return manifest;
}

Manifest verify_checkpoint(const fs::path& folder, VerifyDepth depth) {
  auto manifest = read_manifest(folder);
  for (const auto& [name, expected] : manifest.files) {
    const auto path = folder / name;
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error) throw input_error("{}: cannot be read ({}), the manifest lists it", path.string(), error.message());
    if (static_cast<int64_t>(size) != expected.size)
      throw input_error("{}: found {} bytes, expected {}", path.string(), size, expected.size);
    if (depth == VerifyDepth::kHashes && sha256_file(path) != expected.sha256)
      throw input_error("{}: its SHA-256 differs from the manifest's", path.string());
  }
  return manifest;
}

CheckpointWriter::CheckpointWriter(fs::path checkpoints, int64_t step)
    : checkpoints_(std::move(checkpoints)), step_(step) {
  temporary_ = checkpoints_ / (std::string(kTemporaryPrefix) + checkpoint_name(step));
  std::error_code error;
  fs::create_directories(checkpoints_, error);
  if (!error && fs::exists(temporary_)) {
    if (is_being_written(temporary_))
      throw io_error("{}: another process is writing this checkpoint", temporary_.string());
    fs::remove_all(temporary_, error);
  }
  if (!error) fs::create_directory(temporary_, error);
  if (error) throw io_error("{}: cannot be made ({})", temporary_.string(), error.message());
  lock_ = lock_folder(temporary_);
}

CheckpointWriter::~CheckpointWriter() {
  if (!temporary_.empty()) {
    std::error_code ignored;  // a folder that cannot be removed is cleared by the next run
    fs::remove_all(temporary_, ignored);
  }
  if (lock_ >= 0) ::close(lock_);
}

fs::path CheckpointWriter::seal(std::optional<double> train_loss, std::optional<double> eval_loss) {
  VLMTUNE_CHECK(!temporary_.empty(), "checkpoint {} is sealed twice", step_);
  const auto target = checkpoints_ / checkpoint_name(step_);
  try {
    json document = {{"step", step_}, {"files", sync_and_list(temporary_)}};
    set_loss(document, "eval_loss", eval_loss);
    set_loss(document, "train_loss", train_loss);
    write_file_atomic(temporary_ / kManifestName, document.dump(2) + "\n");
    put_in_place(temporary_, target);
    sync_directory(checkpoints_);
  } catch (const fs::filesystem_error& error) {
    throw io_error("{}: cannot be sealed ({})", target.string(), error.code().message());
  }
  temporary_.clear();
  return target;
}

fs::path discarded_path(const fs::path& checkpoint) {
  return checkpoint.parent_path() /
         fmt::format("{}{}{}", kTemporaryPrefix, checkpoint.filename().string(), kDiscardedSuffix);
}

bool is_temporary_checkpoint(std::string_view name) {
  if (!name.starts_with(kTemporaryPrefix)) return false;
  name.remove_prefix(kTemporaryPrefix.size());
  if (name.ends_with(kDiscardedSuffix)) name.remove_suffix(kDiscardedSuffix.size());
  return parse_checkpoint_step(name, "step-").has_value();
}

bool is_being_written(const fs::path& folder) {
  const int descriptor = lock_folder(folder);
  if (descriptor < 0) return true;
  ::close(descriptor);
  return false;
}

void remove_stale_checkpoints(const fs::path& checkpoints) {
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end; entry.increment(error)) {
    const auto name = entry->path().filename().string();
    if (!is_temporary_checkpoint(name) || entry->is_symlink() || !entry->is_directory()) continue;
    if (is_being_written(entry->path())) continue;
    std::error_code failed;
    fs::remove_all(entry->path(), failed);
    if (failed) log_warning("{}: cannot be removed ({})", entry->path().string(), failed.message());
  }
}

std::optional<SealedCheckpoint> newest_checkpoint(const fs::path& checkpoints) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end; entry.increment(error)) {
    const auto step = parse_checkpoint_step(entry->path().filename().string(), "step-");
    if (step && !entry->is_symlink() && entry->is_directory()) found.emplace_back(*step, entry->path());
  }
  std::sort(found.rbegin(), found.rend());
  for (const auto& [step, path] : found) {
    try {
      auto manifest = verify_checkpoint(path, VerifyDepth::kHashes);
      if (manifest.step != step) throw input_error("{}: its manifest is of step {}", path.string(), manifest.step);
      return SealedCheckpoint{path, std::move(manifest)};
    } catch (const UserError& failure) {
      log_warning("checkpoint {} is skipped: {}", path.filename().string(), failure.what());
    }
  }
  return std::nullopt;
}

}  // namespace vlmtune
