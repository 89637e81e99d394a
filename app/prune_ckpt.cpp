// prune-ckpt: plan, show, and with --apply delete.
#include <cstdio>

#include "app/commands.h"
#include "lib/base/errors.h"
#include "lib/runs/prune.h"

namespace vlmtune {

int run_prune_ckpt(const PruneArguments& arguments) {
  const auto report = prune_checkpoints({.dir = arguments.dir,
                                         .keep_last = arguments.keep_last,
                                         .keep_best = arguments.keep_best,
                                         .apply = arguments.apply});
  std::fputs((arguments.json ? prune_json(report) + "\n" : prune_table(report)).c_str(), stdout);
  return static_cast<int>(report.result.failed.empty() ? ExitCode::kDone : ExitCode::kIo);
}

}  // namespace vlmtune
