#include "lib/models/tower.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/models/convnext/config.h"
#include "lib/models/vit/config.h"

namespace vlmtune {
namespace {

struct Kind {
  std::string_view model_type;
  std::shared_ptr<const TowerConfig> (*read)(const ConfigReader& config, std::optional<int64_t> side);
};

constexpr Kind kKinds[] = {{"clip_vision_model", read_clip},
                           {"siglip_vision_model", read_siglip},
                           {"dinov2", read_dinov2},
                           {"convnextv2", read_convnext}};

}  // namespace

std::shared_ptr<const TowerConfig> read_tower_config(const ConfigReader& config, std::optional<int64_t> side) {
  const auto type = config.text("model_type", "clip_vision_model");
  if ((type == "clip" || type == "siglip") && config.has("vision_config")) {
    auto vision = config.object("vision_config");
    if (!vision.has("model_type") && type == "siglip")
      throw input_error("{}: missing, expected siglip_vision_model", vision.place("model_type"));
    return read_tower_config(vision, side);
  }
  const auto kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& known) { return known.model_type == type; });
  if (kind != std::end(kKinds)) return kind->read(config, side);
  std::vector<std::string_view> known;
  for (const auto& k : kKinds) known.push_back(k.model_type);
  throw input_error("{}: model type \"{}\" is not supported; known vision towers are {}", config.place("model_type"),
                    type, fmt::join(known, ", "));
}

}  // namespace vlmtune
