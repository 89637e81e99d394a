#include "lib/profile/ablation.h"

#include "lib/profile/techniques.h"

namespace vlmtune {
namespace {

struct Measured {
  int64_t bytes;
  double seconds;
};

Measured measure(const Recipe& recipe, Command command, const DryRunOptions& options) {
  const auto report = dry_run(recipe, command, options).report;
  return {report.figures.peak_allocated_bytes(), report.seconds()};
}

}  // namespace

std::vector<AblationRow> ablate(const Recipe& recipe, Command command, const DryRunOptions& options) {
  std::vector<AblationRow> rows;
  Recipe bare = recipe;
  for (const auto& t : techniques())
    if (t.applies(recipe, command)) t.turn_off(bare);
  const auto baseline = measure(bare, command, options);
  const auto add_row = [&](std::string change, const Measured& now, int64_t before) {
    rows.push_back(
        {std::move(change), now.bytes, now.bytes - before, baseline.seconds > 0 ? now.seconds / baseline.seconds : 1});
  };
  add_row("without any technique", baseline, baseline.bytes);
  auto before = baseline;
  for (const auto& t : techniques()) {
    if (!t.applies(recipe, command)) continue;
    t.turn_on(bare);
    const auto now = measure(bare, command, options);
    add_row(std::string("+ ") + t.name, now, before.bytes);
    before = now;
  }
  const auto whole = measure(recipe, command, options);
  add_row("the recipe", whole, whole.bytes);
  for (const auto& t : techniques()) {
    if (!t.applies(recipe, command) || !t.is_on(recipe, command)) continue;
    Recipe less = recipe;
    t.turn_off(less);
    add_row(std::string("the recipe without ") + t.name, measure(less, command, options), whole.bytes);
  }
  return rows;
}

}  // namespace vlmtune
