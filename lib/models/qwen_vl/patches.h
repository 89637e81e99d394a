// The order in which Qwen-VL's tower sees the patches of a picture: block by block, so that those that are merged into one
// token are neighbours.
#pragma once
#include "lib/models/qwen_vl/config.h"

namespace vlmtune {

/// pixels [1 or temporal, C, h, w] -> [P, C * temporal * patch * patch], a still picture being repeated along the time;
/// transformers' `pixel_values`.
Tensor blockwise_patches(const Tensor& pixels, const QwenVlVisionConfig& config);

/// Row and column of each of these patches [2, P] (int64).
Tensor blockwise_positions(ImageSize grid, int64_t merge_size);

/// Windows of patches that see each other; those of the same number of patches are together.
struct Windows {
  Tensor order;  // [tokens] int64: the picture's tokens, window by window; undefined: as they are
  struct Group {
    int64_t count, patches;  ///< windows, and patches of each
  };
  std::vector<Group> groups;
};

/// All `patches` see each other.
inline Windows one_window(int64_t patches) { return {{}, {{1, patches}}}; }

/// Squares of at most `side` x `side` tokens of a grid of tokens, smaller at its right and lower edge.
Windows square_windows(ImageSize token_grid, int64_t side, int64_t patches_per_token);

/// Where each patch lies in a square table of side x side learned positions, stretched over the grid: four rows of the table
/// [4, P] (int64) and their weights [4, P] (fp32).
struct TableTaps {
  Tensor rows, weights;
};
TableTaps stretched_table(ImageSize grid, int64_t merge_size, int64_t side);

}  // namespace vlmtune
