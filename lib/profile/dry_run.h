// The program without its memory: the pipeline of a recipe on the meta device, for the device that the recipe names.
#pragma once
#include "lib/memory/tracking.h"
#include "lib/profile/memory_report.h"
#include "lib/recipe/recipe.h"

namespace vlmtune {

struct DryRunOptions {
  std::optional<int64_t> context_bytes;  ///< instead of the hardware's own
  bool record_timeline = false;
  bool like_transformers = false;  ///< the operations of transformers, PEFT and torch.optim, and their cache
};

struct DryRun {
  MemoryReport report;
  std::shared_ptr<MemoryLedger> ledger;  ///< of the device, with the timeline
};

/// Loads the model, runs two optimizer steps of rows that are as long as the recipe allows (training), or answers a prompt
/// to the last token (inference). Needs a config.json and no weights; nothing touches a GPU. Errors: input_error,
/// usage_error.
DryRun dry_run(const Recipe& recipe, Command command, const DryRunOptions& options = {});

/// The recipe with the folders of known models (recipes/models/<name>, a config.json each) in place of model and tower
/// folders that are not there, so that nobody downloads a model to learn that it does not fit.
Recipe with_known_models(const Recipe& recipe, const std::filesystem::path& recipe_file);

/// Bytes that the recipe may take on its device: the hardware's capacity, or less where it has a budget.
std::optional<int64_t> memory_capacity(const Recipe& recipe);

/// The figures of this process so far, as memory.json has them.
MemoryReport measured_memory(const Recipe& recipe, Command command);

}  // namespace vlmtune
