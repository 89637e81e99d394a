#include "lib/runs/run_directory.h"

#include "lib/base/errors.h"

namespace vlmtune {

RunDirectory make_run_directory(const std::filesystem::path& root) {
  RunDirectory run{root};
  std::error_code error;
  std::filesystem::create_directories(run.checkpoints(), error);
  if (error) throw io_error("{}: cannot be made ({})", run.checkpoints().string(), error.message());
  return run;
}

}  // namespace vlmtune
