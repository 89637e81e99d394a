#include "lib/profile/compare.h"

#include <nlohmann/json.hpp>

#include "lib/base/bytes.h"
#include "lib/base/errors.h"
#include "lib/base/files.h"

namespace vlmtune {
namespace {

using Json = nlohmann::ordered_json;

std::string line(const std::string& name, int64_t predicted, int64_t measured) {
  const auto difference =
      measured > 0
          ? fmt::format("{:+.2f} %", 100.0 * static_cast<double>(predicted - measured) / static_cast<double>(measured))
          : std::string("-");
  return fmt::format("{:<32}{:>12}{:>12}{:>11}\n", name, format_bytes(predicted), format_bytes(measured), difference);
}

}  // namespace

std::string comparison_table(const MemoryReport& predicted, const std::filesystem::path& run_dir) {
  const auto file = run_dir / "memory.json";
  const auto measured = Json::parse(read_file(file), nullptr, false);
  if (!measured.is_object() || !measured.contains("by_category") || !measured.contains("phases"))
    throw input_error("{}: is no memory report of a finished run", file.string());
  const auto& f = predicted.figures;
  std::string text = fmt::format("{:<32}{:>12}{:>12}{:>11}\n", "", "predicted", "measured", "difference");
  text += line("peak allocated", f.peak_allocated_bytes(), measured.value("peak_allocated_bytes", int64_t{0}));
  text += line("peak reserved", f.peak_reserved_bytes, measured.value("peak_reserved_bytes", int64_t{0}));
  const auto& categories = f.phases[f.peak_phase].peak.by_category;
  for (size_t i = 0; i < kNumMemoryCategories; ++i) {
    const int64_t bytes = measured["by_category"].value(std::string(kMemoryCategories[i]), int64_t{0});
    if (categories[i] > 0 || bytes > 0) text += line("  " + std::string(kMemoryCategories[i]), categories[i], bytes);
  }
  for (const auto& phase : measured["phases"])
    for (const auto& mine : f.phases)
      if (mine.name == phase.value("name", ""))
        text += line(mine.name, mine.peak.bytes, phase.value("peak_bytes", int64_t{0}));
  return text;
}

}  // namespace vlmtune
