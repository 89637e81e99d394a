#include "lib/models/vlm/positions.h"

#include <algorithm>

#include "lib/base/errors.h"

namespace vlmtune {

Tensor token_positions(int64_t tokens, const std::vector<int64_t>& left_padding, const Tensor& first_keys) {
  const auto slots = torch::arange(tokens).unsqueeze(0);
  if (first_keys.defined()) return slots - first_keys;
  if (left_padding.empty()) return slots;
  return (slots - torch::tensor(left_padding, torch::kLong).unsqueeze(1)).clamp_min(0);
}

Tensor picture_positions(const Tensor& is_slot, const std::vector<TokenGrid>& grids,
                         const std::vector<int64_t>& left_padding, const Tensor& first_keys) {
  const int64_t rows = is_slot.size(0), tokens = is_slot.size(1);
  const auto positions = torch::zeros({3, rows, tokens}, torch::kLong);
  const auto of_picture = is_slot.accessor<bool, 2>();
  auto position = positions.accessor<int64_t, 3>();
  const auto put = [&](int64_t row, int64_t t, int64_t time, int64_t y, int64_t x) {
    position[0][row][t] = time;
    position[1][row][t] = y;
    position[2][row][t] = x;
  };
  const auto* starts = first_keys.defined() ? first_keys.const_data_ptr<int32_t>() : nullptr;
  size_t picture = 0;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t next = 0;
    for (int64_t t = left_padding.empty() ? 0 : left_padding[static_cast<size_t>(row)]; t < tokens;) {
      if (starts != nullptr && starts[row * tokens + t] == t) next = 0;
      if (!of_picture[row][t]) {
        put(row, t++, next, next, next);
        ++next;
        continue;
      }
      VLMTUNE_CHECK(picture < grids.size(), "row {} has slots for more than {} pictures", row, grids.size());
      const auto& grid = grids[picture++];
      VLMTUNE_CHECK(t + grid.time * grid.height * grid.width <= tokens, "picture {} does not end within row {}",
                    picture - 1, row);
      for (int64_t i = 0; i < grid.time; ++i)
        for (int64_t y = 0; y < grid.height; ++y)
          for (int64_t x = 0; x < grid.width; ++x) put(row, t++, next + i * grid.time_step, next + y, next + x);
      next += std::max(grid.width, grid.height);
    }
  }
  return positions;
}

Tensor next_positions(const Tensor& positions) {
  const auto row = positions.dim() == 3 ? positions.amax(0) : positions;  // [B or 1, T]
  return row.amax(1, true) + 1;
}

}  // namespace vlmtune
