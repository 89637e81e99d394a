#include "lib/models/qwen_vl/patches.h"

#include <algorithm>
#include <map>

namespace vlmtune {
namespace {

/// The two entries of a table of `side` that stand around each of `index` of `size` places, ends on ends [2, P], and their
/// weights.
std::pair<Tensor, Tensor> taps(const Tensor& index, int64_t size, int64_t side) {
  const auto place =
      index.to(torch::kFloat) * static_cast<double>(side - 1) / static_cast<double>(std::max<int64_t>(size - 1, 1));
  const auto before = place.floor(), share = place - before;
  const auto first = before.to(torch::kLong);
  return {torch::stack({first, (first + 1).clamp_max(side - 1)}), torch::stack({1 - share, share})};
}

}  // namespace

Tensor blockwise_patches(const Tensor& pixels, const QwenVlVisionConfig& c) {
  const int64_t channels = pixels.size(1), p = c.patch_size, m = c.merge_size;
  const int64_t rows = pixels.size(2) / (p * m), columns = pixels.size(3) / (p * m);
  return pixels.view({pixels.size(0), channels, rows, m, p, columns, m, p})
      .expand({c.temporal_patch_size, -1, -1, -1, -1, -1, -1, -1})
      .permute({2, 5, 3, 6, 1, 0, 4, 7})  // [rows, columns, m, m, C, temporal, p, p]
      .reshape({rows * columns * m * m, channels * c.temporal_patch_size * p * p});
}

Tensor blockwise_positions(ImageSize grid, int64_t m) {
  const auto in_blocks = [&](const Tensor& of_patch) {  // [rows, columns]
    return of_patch.reshape({grid.height / m, m, grid.width / m, m}).transpose(1, 2).flatten();
  };
  const auto rows = torch::arange(grid.height).unsqueeze(1).expand({grid.height, grid.width});
  const auto columns = torch::arange(grid.width).unsqueeze(0).expand({grid.height, grid.width});
  return torch::stack({in_blocks(rows), in_blocks(columns)});
}

Windows square_windows(ImageSize grid, int64_t side, int64_t patches_per_token) {
  std::map<int64_t, std::vector<int64_t>, std::greater<>> by_size;  // tokens of a window -> tokens of all such windows
  for (int64_t top = 0; top < grid.height; top += side)
    for (int64_t left = 0; left < grid.width; left += side) {
      const int64_t bottom = std::min<int64_t>(top + side, grid.height),
                    right = std::min<int64_t>(left + side, grid.width);
      auto& tokens = by_size[(bottom - top) * (right - left)];
      for (int64_t y = top; y < bottom; ++y)
        for (int64_t x = left; x < right; ++x) tokens.push_back(y * grid.width + x);
    }
  Windows windows;
  std::vector<int64_t> order;
  for (const auto& [size, tokens] : by_size) {
    windows.groups.push_back({static_cast<int64_t>(tokens.size()) / size, size * patches_per_token});
    order.insert(order.end(), tokens.begin(), tokens.end());
  }
  windows.order = torch::tensor(order, torch::kLong);
  return windows;
}

TableTaps stretched_table(ImageSize grid, int64_t merge_size, int64_t side) {
  const auto positions = blockwise_positions(grid, merge_size);
  const auto [rows, of_row] = taps(positions[0], grid.height, side);
  const auto [columns, of_column] = taps(positions[1], grid.width, side);
  return {(rows.unsqueeze(1) * side + columns.unsqueeze(0)).flatten(0, 1),
          (of_row.unsqueeze(1) * of_column.unsqueeze(0)).flatten(0, 1)};
}

}  // namespace vlmtune
