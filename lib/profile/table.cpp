#include "lib/profile/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lib/base/bytes.h"

namespace vlmtune {
namespace {

constexpr int kBarWidth = 32;

std::string bar(int64_t part, int64_t whole) {
  const auto filled = whole > 0 ? static_cast<size_t>((kBarWidth * part + whole / 2) / whole) : 0;
  return std::string(std::min<size_t>(filled, kBarWidth), '#');
}

std::string row(const std::string& name, int64_t bytes, int64_t whole) {
  return fmt::format("  {:<28}{:>11}  {}\n", name, format_bytes(bytes), bar(bytes, whole));
}

int64_t sum(const CategoryBytes& bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

/// Layers of one kind together: "layers.0" to "layers.31" become "layers (32)".
std::vector<std::pair<std::string, int64_t>> modules_of(const MemoryPeak& peak) {
  std::map<std::string, std::pair<int64_t, int64_t>> groups;  // name -> number, bytes
  for (const auto& [module, bytes] : peak.by_module) {
    const auto at = module.rfind("layers.");
    auto& [number, total] = groups[at == std::string::npos ? module : module.substr(0, at) + "layers"];
    ++number;
    total += sum(bytes);
  }
  std::vector<std::pair<std::string, int64_t>> result;
  for (const auto& [name, group] : groups)
    if (group.second > 0)
      result.emplace_back(name.empty()      ? "(other)"
                          : group.first > 1 ? fmt::format("{} ({})", name, group.first)
                                            : name,
                          group.second);
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

std::string verdict(const MemoryReport& report) {
  const auto& f = report.figures;
  std::string text = fmt::format(
      "{} on {}: {} in all ({} allocated at the peak, {} reserved, {} outside the allocator)\n", report.command,
      report.hardware, format_bytes(f.total_bytes()), format_bytes(f.peak_allocated_bytes()),
      format_bytes(f.peak_reserved_bytes), format_bytes(f.overhead_bytes));
  if (report.capacity_bytes)
    text += fmt::format("{} the device has {}\n",
                        report.fits() ? "fits:" : "does NOT fit:", format_bytes(*report.capacity_bytes));
  return text;
}

}  // namespace

std::string memory_table(const MemoryReport& report) {
  const auto& f = report.figures;
  const auto& peak = f.phases[f.peak_phase];
  auto text = verdict(report);
  text += fmt::format("\nat the peak ({}), by category\n", peak.name);
  for (size_t i = 0; i < kNumMemoryCategories; ++i)
    if (peak.peak.by_category[i] > 0)
      text += row(std::string(kMemoryCategories[i]), peak.peak.by_category[i], peak.peak.bytes);
  text += "\nat the peak, by module\n";
  for (const auto& [name, bytes] : modules_of(peak.peak)) text += row(name, bytes, peak.peak.bytes);
  text += "\npeak of each phase\n";
  for (const auto& phase : f.phases)
    if (phase.peak.bytes > 0) text += row(phase.name, phase.peak.bytes, peak.peak.bytes);
  text += fmt::format("\non the host: {} in tensors", format_bytes(f.host_peak_bytes));
  if (f.loader_bytes > 0) text += fmt::format(", {} of samples decoded ahead", format_bytes(f.loader_bytes));
  text += "\n";
  if (report.time)
    text += fmt::format(
        "a step takes at least {:.3g} s there: {:.0f} % bound by arithmetic, {:.0f} % by memory, {:.0f} % of it "
        "recomputing\n",
        report.time->total(), 100 * report.time->compute / report.time->total(),
        100 * report.time->memory / report.time->total(), 100 * report.time->recompute / report.time->total());
  if (!report.ablation.empty()) {
    text += fmt::format("\n{:<52}{:>11}{:>12}{:>8}\n", "technique", "peak", "change", "time");
    for (const auto& a : report.ablation)
      text += fmt::format("{:<52}{:>11}{:>12}{:>7.2f}x\n", a.change, format_bytes(a.peak_bytes),
                          (a.delta_bytes < 0 ? "-" : "+") + format_bytes(std::abs(a.delta_bytes)), a.relative_time);
  }
  return text;
}

std::string trials_table(const FittingPlan& plan) {
  std::string text;
  for (const auto& trial : plan.trials)
    text += fmt::format("{:<9}{:>11}{:>11.3g} s  {}\n", trial.fits ? "fits" : "too much",
                        format_bytes(trial.total_bytes), trial.seconds, trial.change);
  if (!plan.kept.empty()) text += fmt::format("left as the recipe names them: {}\n", fmt::join(plan.kept, ", "));
  text += plan.fits ? fmt::format("plan: {}\n\n", plan.patch) : "no plan fits; the smallest found:\n\n";
  return text;
}

}  // namespace vlmtune
