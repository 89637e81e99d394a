#include "lib/models/convnext/config.h"

#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/models/convnext/model.h"

namespace vlmtune {

std::shared_ptr<const TowerConfig> read_convnext(const ConfigReader& config, std::optional<int64_t> side) {
  const auto list = [&](const char* key, std::vector<int64_t> usual) {
    return config.has(key) ? config.integers(key) : std::move(usual);
  };
  auto c = std::make_shared<ConvNextConfig>();
  c->hidden_sizes = list("hidden_sizes", {96, 192, 384, 768});
  c->depths = list("depths", {3, 3, 9, 3});
  c->num_channels = config.integer("num_channels", 3);
  c->patch_size = config.integer("patch_size", 4);
  c->image_size = side.value_or(config.integer("image_size", 224));
  c->activation = parse_activation(config.text("hidden_act", "gelu"), config.place("hidden_act"));
  config.check_sizes({{"image_size", c->image_size}, {"patch_size", c->patch_size}, {"num_channels", c->num_channels}});
  if (c->depths.empty() || c->depths.size() != c->hidden_sizes.size())
    throw input_error("{}: found {} stages, expected as many as the {} of hidden_sizes", config.place("depths"),
                      c->depths.size(), c->hidden_sizes.size());
  for (size_t i = 0; i < c->depths.size(); ++i)
    config.check_sizes({{"depths", c->depths[i]}, {"hidden_sizes", c->hidden_sizes[i]}});
  if (const double rate = config.number("drop_path_rate", 0); rate != 0)
    throw input_error("{}: found {}, expected 0: blocks that are left out at random are not supported",
                      config.place("drop_path_rate"), rate);
  if (c->grid_side(c->last_state()) < 1)
    throw input_error("{}: found {}, which is too small for {} stages", config.place("image_size"), c->image_size,
                      c->depths.size());
  return c;
}

int64_t ConvNextConfig::grid_side(int64_t state) const {
  const int64_t halvings = std::max<int64_t>(0, state - 1);
  return image_size / patch_size >> halvings;
}

int64_t ConvNextConfig::width(int64_t state) const {
  return hidden_sizes[static_cast<size_t>(std::max<int64_t>(0, state - 1))];
}

std::string ConvNextConfig::describe() const {
  return fmt::format("convnextv2 hidden {} depths {} image {} patch {} channels {} activation {}",
                     fmt::join(hidden_sizes, " "), fmt::join(depths, " "), image_size, patch_size, num_channels,
                     static_cast<int>(activation));
}

std::vector<std::string> ConvNextConfig::unused_modules(int64_t state) const {
  std::vector<std::string> modules{"layernorm"};  // behind the mean of the last grid
  for (int64_t i = state; i < last_state(); ++i) modules.push_back(fmt::format("encoder.stages.{}", i));
  return modules;
}

std::unique_ptr<Tower> ConvNextConfig::build(int64_t state) const { return std::make_unique<ConvNext>(*this, state); }

}  // namespace vlmtune
