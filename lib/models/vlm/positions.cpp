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

Tensor picture_positions(const Tensor& ids, int64_t image_token_id, const std::vector<ImageSize>& grids,
                         const std::vector<int64_t>& left_padding, const Tensor& first_keys) {
  const int64_t rows = ids.size(0), tokens = ids.size(1);
  const auto positions = torch::zeros({3, rows, tokens}, torch::kLong);
  const auto id = ids.accessor<int64_t, 2>();
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
      if (id[row][t] != image_token_id) {
        put(row, t++, next, next, next);
        ++next;
        continue;
      }
      VLMTUNE_CHECK(picture < grids.size(), "row {} has slots for more than {} pictures", row, grids.size());
      const auto [width, height] = grids[picture++];
      VLMTUNE_CHECK(t + int64_t{width} * height <= tokens, "picture {} does not end within row {}", picture - 1, row);
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x) put(row, t++, next, next + y, next + x);
      next += std::max(width, height);
    }
  }
  return positions;
}

Tensor next_positions(const Tensor& positions) {
  const auto row = positions.dim() == 3 ? positions.amax(0) : positions;  // [B or 1, T]
  return row.amax(1, true) + 1;
}

}  // namespace vlmtune
