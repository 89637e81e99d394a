// profile-memory: what a recipe takes on a device, predicted by a dry run of its pipeline.
#include <algorithm>
#include <iostream>

#include "app/commands.h"
#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/profile/ablation.h"
#include "lib/profile/compare.h"
#include "lib/profile/report_page.h"
#include "lib/profile/table.h"

namespace vlmtune {
namespace {

Command chosen_command(const ProfileArguments& a, const std::vector<std::string>& sets) {
  if (a.command == "pretrain") return Command::kPretrain;
  if (a.command == "lora-finetune") return Command::kLoraFinetune;
  return a.command == "infer" ? Command::kInfer : guess_command(a.recipe, sets);
}

/// Whether the recipe fits each device that is known.
std::vector<HardwareVerdict> verdicts(const Recipe& recipe, Command command, const DryRunOptions& options) {
  std::vector<HardwareVerdict> result;
  for (const auto& hardware : known_hardware(default_hardware_dirs({}))) {
    if (!hardware.capacity_bytes) continue;
    Recipe there = recipe;
    there.hardware = hardware;
    result.push_back({hardware.name, *hardware.capacity_bytes,
                      dry_run(there, command, {.context_bytes = options.context_bytes}).report.figures.total_bytes()});
  }
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.capacity_bytes < b.capacity_bytes; });
  return result;
}

}  // namespace

int run_profile_memory(const ProfileArguments& a) {
  auto sets = a.sets;
  if (!a.hardware.empty()) sets.push_back("hardware=" + a.hardware);
  const auto command = chosen_command(a, sets);
  auto recipe =
      with_known_models(load_recipe(a.recipe, command, sets, {.hardware_dirs = {}, .require_inputs = false}), a.recipe);
  DryRunOptions options;
  options.like_transformers = a.peer == "transformers";
  // It makes the logits of all tokens at once; a recipe that asks for chunks speaks of a stack that has them.
  if (options.like_transformers && !named_settings(a.recipe, sets).contains("/memory/loss_chunk_tokens"))
    recipe.memory.loss_chunk_tokens = 0;
  options.record_timeline = !a.report.empty();
  if (a.context_mib) options.context_bytes = static_cast<int64_t>(*a.context_mib * (1 << 20));
  std::string trials, patch;
  if (a.fit) {
    const auto plan = plan_memory(recipe, command, named_settings(a.recipe, sets), options);
    trials = trials_table(plan);
    patch = plan.patch;
    recipe = plan.recipe;
  }
  auto run = dry_run(recipe, command, options);
  run.report.plan = patch;
  if (a.ablate) run.report.ablation = ablate(recipe, command, options);
  if (!a.report.empty()) write_memory_page(a.report, run, verdicts(recipe, command, options));
  const auto json = memory_json(run.report);
  if (a.json == "-") {
    std::cout << json << std::endl;
  } else {
    std::cout << trials << memory_table(run.report) << std::flush;
    if (!a.compare.empty()) std::cout << '\n' << comparison_table(run.report, a.compare) << std::flush;
    if (!a.json.empty()) write_file_atomic(a.json, json + "\n");
  }
  return static_cast<int>(run.report.fits() ? ExitCode::kDone : ExitCode::kMemory);
}

}  // namespace vlmtune
