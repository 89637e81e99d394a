#include "lib/runs/run_directory.h"

#include "lib/base/errors.h"
#include "lib/base/files.h"

namespace vlmtune {

namespace fs = std::filesystem;

RunDirectory make_run_directory(const fs::path& root) {
  RunDirectory run{root};
  std::error_code error;
  fs::create_directories(run.checkpoints(), error);
  if (error) throw io_error("{}: cannot be made ({})", run.checkpoints().string(), error.message());
  for (const auto& file : {run.recipe(), run.metrics(), run.memory(), run.report()}) remove_stale_temporaries(file);
  return run;
}

}  // namespace vlmtune
