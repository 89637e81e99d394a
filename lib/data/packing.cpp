#include "lib/data/packing.h"

#include <iterator>

namespace vlmtune {
namespace {

template <typename T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void append_sample(Example& row, Example&& sample) {
  const auto start = static_cast<int64_t>(row.ids.size());
  if (!sample.labels.empty()) sample.labels[0] = kIgnoreLabel;
  for (int64_t& position : sample.image_starts) position += start;
  append(row.ids, sample.ids);
  append(row.labels, sample.labels);
  append(row.images, sample.images);
  append(row.image_starts, sample.image_starts);
  append(row.image_lengths, sample.image_lengths);
  row.sample_starts.push_back(start);
  row.image_tokens += sample.image_tokens;
  row.label_tokens += sample.label_tokens;
  row.truncated |= sample.truncated;
}

std::optional<size_t> RowPacker::place(int64_t tokens) {
  for (size_t row = 0; row < lengths_.size(); ++row)
    if (lengths_[row] + tokens <= row_tokens_) {
      lengths_[row] += tokens;
      return row;
    }
  if (static_cast<int64_t>(lengths_.size()) == max_rows_) return std::nullopt;
  lengths_.push_back(tokens);
  return lengths_.size() - 1;
}

}  // namespace vlmtune
