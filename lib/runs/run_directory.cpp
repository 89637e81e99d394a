#include "lib/runs/run_directory.h"

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/runs/manifest.h"

namespace vlmtune {
namespace fs = std::filesystem;

RunDirectory make_run_directory(const fs::path& root) {
  RunDirectory run{root};
  std::error_code error;
  fs::create_directories(run.checkpoints(), error);
  if (error) throw io_error("{}: cannot be made ({})", run.checkpoints().string(), error.message());
  return run;
}

RunLock::RunLock(const RunDirectory& run) : lock_(run.root) {
  if (!lock_.acquire()) throw io_error("{}: another process is training into this folder", run.root.string());
}

void remove_stale_files(const RunDirectory& run) {
  for (const auto& file : {run.recipe(), run.metrics(), run.memory(), run.report()}) remove_stale_temporaries(file);
  remove_stale_checkpoints(run.checkpoints());
}

}  // namespace vlmtune
