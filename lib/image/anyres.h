// LLaVA-NeXT's "anyres": which grid a picture is cut into, which of its features survive unpadding, how many tokens
// that makes. This is the only place that knows; the data room counts with it, the model packs with it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/image/image.h"

namespace vlmtune {

/// The grid resolution that keeps most of the picture's pixels, then wastes fewest (the first of equals).
/// Errors: input_error when `pinpoints` is empty or the picture has no pixels.
ImageSize select_best_resolution(ImageSize original, std::span<const ImageSize> pinpoints);

/// The picture's size after it is scaled into `target` without changing its aspect ratio.
ImageSize fit_into(ImageSize original, ImageSize target);

/// How the features of a picture's tiles become one sequence.
/// Tile 0 is the whole picture; tiles 1..grid_height*grid_width are the grid, row by row. Joined, the grid's features are
/// [grid_height * patches, grid_width * patches]; rows [top, top + height) and columns [left, left + width) of them are
/// kept, and every kept row is followed by one image_newline.
struct AnyresLayout {
  ImageSize resolution;                 // pixels of the grid
  int grid_width = 0, grid_height = 0;  // tiles
  int patches = 0;                      // features along the side of a tile
  int top = 0, left = 0;                // of the kept features
  int width = 0, height = 0;            // kept features; 0 for a picture thinner than one feature
  int num_tiles() const { return 1 + grid_width * grid_height; }
  /// patches^2 for the whole picture + height * (width + 1).
  int64_t num_tokens() const { return int64_t{patches} * patches + int64_t{height} * (int64_t{width} + 1); }
};

/// LLaVA-OneVision's published grids: one to six tiles of 384 pixels a side, row by row.
std::vector<ImageSize> onevision_pinpoints();

/// LLaVA-OneVision's "anyres_max_N": features of `kept` size, scaled down to about N tiles' worth where they are many more.
ImageSize limit_features(ImageSize kept, int patches, int max_tiles);

/// `tile_size` in pixels, `patches` = tile_size / patch_size of the vision tower.
AnyresLayout anyres_layout(ImageSize original, std::span<const ImageSize> pinpoints, int tile_size, int patches);

/// anyres_layout(...).num_tokens(). Towers that keep their CLS feature add one (for the whole picture) themselves.
int64_t llava_next_image_tokens(ImageSize original, std::span<const ImageSize> pinpoints, int tile_size, int patches);

}  // namespace vlmtune
