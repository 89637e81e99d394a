#include "lib/image/anyres.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

/// Python's int(round(x, 7)) for x >= 0. fmt rounds decimals correctly, as Python does.
int round7(double x) { return std::stoi(fmt::format("{:.7f}", x)); }

}  // namespace

ImageSize select_best_resolution(ImageSize original, std::span<const ImageSize> pinpoints) {
  if (pinpoints.empty()) throw input_error("no image_grid_pinpoints to choose from");
  if (original.width < 1 || original.height < 1) throw input_error("a picture without pixels has no resolution");
  ImageSize best;
  int64_t most_effective = 0, least_wasted = std::numeric_limits<int64_t>::max();
  for (const ImageSize candidate : pinpoints) {
    const double scale = std::min(static_cast<double>(candidate.width) / original.width,
                                  static_cast<double>(candidate.height) / original.height);
    const auto scaled_width = static_cast<int64_t>(original.width * scale);
    const auto scaled_height = static_cast<int64_t>(original.height * scale);
    const int64_t effective = std::min(scaled_width * scaled_height, int64_t{original.width} * original.height);
    const int64_t wasted = int64_t{candidate.width} * candidate.height - effective;
    if (effective > most_effective || (effective == most_effective && wasted < least_wasted)) {
      most_effective = effective;
      least_wasted = wasted;
      best = candidate;
    }
  }
  return best;
}

ImageSize fit_into(ImageSize original, ImageSize target) {
  const double scale_width = static_cast<double>(target.width) / original.width;
  const double scale_height = static_cast<double>(target.height) / original.height;
  if (scale_width < scale_height)
    return {target.width, std::min(static_cast<int>(std::ceil(original.height * scale_width)), target.height)};
  return {std::min(static_cast<int>(std::ceil(original.width * scale_height)), target.width), target.height};
}

AnyresLayout anyres_layout(ImageSize original, std::span<const ImageSize> pinpoints, int tile_size, int patches) {
  AnyresLayout layout;
  layout.resolution = select_best_resolution(original, pinpoints);
  layout.grid_width = layout.resolution.width / tile_size;
  layout.grid_height = layout.resolution.height / tile_size;
  layout.patches = patches;
  layout.width = layout.grid_width * patches;
  layout.height = layout.grid_height * patches;
  const double aspect = static_cast<double>(original.width) / original.height;
  const double grid_aspect = static_cast<double>(layout.width) / layout.height;
  if (aspect > grid_aspect) {
    const double scale = static_cast<double>(layout.width) / original.width;
    layout.top = (layout.height - round7(original.height * scale)) / 2;
    layout.height -= 2 * layout.top;
  } else {
    const double scale = static_cast<double>(layout.height) / original.height;
    layout.left = (layout.width - round7(original.width * scale)) / 2;
    layout.width -= 2 * layout.left;
  }
  return layout;
}

std::vector<ImageSize> onevision_pinpoints() {
  constexpr int kTile = 384, kMost = 6 * kTile;
  std::vector<ImageSize> grids;
  for (int height = kTile; height <= kMost; height += kTile)
    for (int width = kTile; width <= kMost; width += kTile) grids.push_back({width, height});
  return grids;
}

ImageSize limit_features(ImageSize kept, int patches, int max_tiles) {
  const double ratio = std::sqrt(static_cast<double>(int64_t{kept.height} * kept.width) /
                                 static_cast<double>(int64_t{max_tiles} * patches * patches));
  if (ratio <= 1.1) return kept;
  const auto divided = [ratio](int side) {  // Python's float division with //
    const double quotient = (side - std::fmod(side, ratio)) / ratio, whole = std::floor(quotient);
    return static_cast<int>(quotient - whole > 0.5 ? whole + 1 : whole);
  };
  return {divided(kept.width), divided(kept.height)};
}

int64_t llava_next_image_tokens(ImageSize original, std::span<const ImageSize> pinpoints, int tile_size, int patches) {
  return anyres_layout(original, pinpoints, tile_size, patches).num_tokens();
}

}  // namespace vlmtune
