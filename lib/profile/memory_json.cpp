#include <nlohmann/json.hpp>

#include "lib/base/files.h"
#include "lib/memory/resident.h"
#include "lib/profile/memory_report.h"

namespace vlmtune {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const CategoryBytes& bytes) {
  Json json = Json::object();
  for (size_t i = 0; i < bytes.size(); ++i) json[std::string(kMemoryCategories[i])] = bytes[i];
  return json;
}

}  // namespace

std::string memory_json(const MemoryReport& report) {
  const auto& figures = report.figures;
  const auto& peak = figures.phases[figures.peak_phase];
  Json json;
  json["command"] = report.command;
  json["hardware"]["name"] = report.hardware;
  json["hardware"]["capacity_bytes"] = report.capacity_bytes ? Json(*report.capacity_bytes) : Json();
  json["fits"] = report.fits();
  json["peak_allocated_bytes"] = figures.peak_allocated_bytes();
  json["peak_reserved_bytes"] = figures.peak_reserved_bytes;
  json["overhead_bytes"] = figures.overhead_bytes;
  json["total_bytes"] = figures.total_bytes();
  json["peak_phase"] = peak.name;
  json["by_category"] = to_json(peak.peak.by_category);
  json["by_module"] = Json::object();
  for (const auto& [module, bytes] : peak.peak.by_module)
    json["by_module"][module.empty() ? "(other)" : module] = to_json(bytes);
  json["phases"] = Json::array();
  for (const auto& phase : figures.phases)
    if (phase.peak.bytes > 0)
      json["phases"].push_back(
          {{"name", phase.name}, {"peak_bytes", phase.peak.bytes}, {"by_category", to_json(phase.peak.by_category)}});
  if (figures.allocator_peak_bytes) json["allocator"]["peak_allocated_bytes"] = *figures.allocator_peak_bytes;
  json["host"]["peak_bytes"] = figures.host_peak_bytes;
  json["host"]["loader_bytes"] = figures.loader_bytes;
  if (!report.time) json["host"]["resident_peak_bytes"] = peak_resident_bytes();
  if (report.time) {
    const auto& time = *report.time;
    json["step_time"] = {{"seconds", time.total()},
                         {"compute", time.compute},
                         {"memory", time.memory},
                         {"link", time.link()},
                         {"recompute", time.recompute}};
  }
  if (!report.ablation.empty()) {
    json["ablation"] = Json::array();
    for (const auto& row : report.ablation)
      json["ablation"].push_back({{"change", row.change},
                                  {"peak_bytes", row.peak_bytes},
                                  {"delta_bytes", row.delta_bytes},
                                  {"relative_time", row.relative_time}});
  }
  if (!report.plan.empty()) json["plan"] = Json::parse(report.plan);
  return json.dump(2);
}

void write_memory_json(const std::filesystem::path& file, const MemoryReport& report) {
  write_file_atomic(file, memory_json(report) + "\n");
}

}  // namespace vlmtune
