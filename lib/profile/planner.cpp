#include "lib/profile/planner.h"

#include <algorithm>
#include <bit>

#include "lib/base/bytes.h"
#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/profile/techniques.h"

namespace vlmtune {
namespace {

/// A set of techniques as bits of their places in `techniques()`.
using Subset = uint32_t;

struct Effect {
  Subset techniques = 0;
  int64_t bytes = 0;   ///< saved by them
  double seconds = 0;  ///< added by them
};

Recipe with(const Recipe& recipe, Subset subset) {
  Recipe changed = recipe;
  for (size_t i = 0; i < techniques().size(); ++i)
    if (subset >> i & 1) techniques()[i].turn_on(changed);
  return changed;
}

std::string describe(Subset subset) {
  std::string text;
  for (size_t i = 0; i < techniques().size(); ++i)
    if (subset >> i & 1) text += (text.empty() ? "" : ", ") + std::string(techniques()[i].name);
  return text.empty() ? "no technique that is left open" : text;
}

bool is_open(const Technique& technique, const std::set<std::string>& fixed) {
  return std::none_of(technique.keys.begin(), technique.keys.end(),
                      [&](const char* key) { return key != nullptr && fixed.contains(key); });
}

}  // namespace

FittingPlan plan_memory(const Recipe& recipe, Command command, const std::set<std::string>& fixed,
                        const DryRunOptions& options) {
  FittingPlan plan;
  // What a plan may take: 2 % less than there is, the accuracy that a prediction is held to.
  std::optional<int64_t> limit;
  const auto may_take = [](int64_t capacity) { return capacity - capacity / 50; };
  const auto is_free = [&](const Technique& t) {
    return t.may_be_planned && t.applies(recipe, command) && is_open(t, fixed);
  };
  Recipe fastest = recipe;
  for (const auto& technique : techniques())
    if (is_free(technique))
      technique.turn_off(fastest);
    else if (technique.may_be_planned && technique.applies(recipe, command))
      for (const char* key : technique.keys)
        if (key != nullptr && fixed.contains(key)) plan.kept.emplace_back(key);
  std::vector<Recipe> seen;  // some techniques do nothing beside or without others
  const auto look = [&](Subset subset) {
    const auto changed = with(fastest, subset);
    if (std::find(seen.begin(), seen.end(), changed) != seen.end()) return false;
    seen.push_back(changed);
    auto report = dry_run(changed, command, options).report;
    const int64_t bytes = report.figures.total_bytes();
    const double seconds = report.seconds();
    if (report.capacity_bytes) limit = may_take(*report.capacity_bytes);
    const bool fits = !limit || bytes <= *limit;
    plan.trials.push_back({describe(subset), bytes, seconds, fits});
    const bool better = fits ? !plan.fits || seconds < plan.report.seconds()
                             : !plan.fits && (plan.report.command.empty() || bytes < plan.report.figures.total_bytes());
    if (better || plan.trials.size() == 1) {
      plan.fits = fits;
      plan.recipe = changed;
      plan.report = std::move(report);
      plan.patch = recipe_patch(recipe, changed);
    }
    return fits;
  };
  if (look(0)) return plan;

  // Each technique alone tells what it saves and costs; sums of these say in which order to look at sets of them.
  const auto base = plan.trials[0];
  std::vector<Effect> sets{{}};
  for (size_t i = 0; i < techniques().size(); ++i) {
    const auto& technique = techniques()[i];
    if (!is_free(technique) || technique.is_on(fastest, command)) continue;
    const size_t trials = plan.trials.size();
    look(Subset{1} << i);
    const auto& alone = plan.trials.size() > trials ? plan.trials.back() : base;
    const size_t before = sets.size();
    for (size_t k = 0; k < before; ++k)
      sets.push_back({sets[k].techniques | Subset{1} << i, sets[k].bytes + base.total_bytes - alone.total_bytes,
                      sets[k].seconds + alone.seconds - base.seconds});
  }
  if (plan.fits) return plan;
  std::stable_sort(sets.begin(), sets.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  for (const auto& set : sets) {
    if (std::popcount(set.techniques) < 2) continue;
    // Savings overlap more often than they add up to more: a set that is short by half again is not looked at.
    if (base.total_bytes - set.bytes - set.bytes / 2 > *limit) continue;
    if (look(set.techniques)) return plan;
  }
  return plan;
}

Recipe apply_memory_plan(const Recipe& recipe, Command command, const std::set<std::string>& fixed) {
  Recipe chosen = recipe;
  if (recipe.memory.plan == MemoryPlan::kAuto) {
    const auto plan = plan_memory(recipe, command, fixed, {});
    for (const auto& trial : plan.trials)
      log_info("{:<9}{:>11}  {}", trial.fits ? "fits" : "too much", format_bytes(trial.total_bytes), trial.change);
    if (!plan.fits)
      throw UserError(ExitCode::kMemory, fmt::format("/memory/plan: no plan fits {}; the smallest takes {}",
                                                     format_bytes(plan.report.capacity_bytes.value_or(0)),
                                                     format_bytes(plan.report.figures.total_bytes())));
    log_info("memory plan: {}", plan.patch);
    chosen = plan.recipe;
  }
  if (recipe.memory.budget) memory_accounts().device->set_limit(parse_bytes(*recipe.memory.budget).value());
  return chosen;
}

}  // namespace vlmtune
