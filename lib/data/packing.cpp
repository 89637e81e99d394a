#include "lib/data/packing.h"

#include <algorithm>
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

std::optional<StepFiller::Place> StepFiller::place(int64_t tokens) {
  if (limits_.row_tokens > 0)
    for (size_t micro = 0; micro < lengths_.size(); ++micro)
      for (size_t row = 0; row < lengths_[micro].size(); ++row)
        if (lengths_[micro][row] + tokens <= limits_.row_tokens) {
          lengths_[micro][row] += tokens;
          return Place{micro, row};
        }
  if (lengths_.empty() || !has_room(lengths_.back(), tokens)) {
    if (static_cast<int64_t>(lengths_.size()) == limits_.micro_batches) return std::nullopt;
    lengths_.emplace_back();
  }
  lengths_.back().push_back(tokens);
  return Place{lengths_.size() - 1, lengths_.back().size() - 1};
}

bool StepFiller::full() const {
  return limits_.row_tokens == 0 && static_cast<int64_t>(lengths_.size()) == limits_.micro_batches &&
         !has_room(lengths_.back(), 1);
}

bool StepFiller::has_room(const std::vector<int64_t>& rows, int64_t tokens) const {
  const auto count = static_cast<int64_t>(rows.size());
  if (count == limits_.rows) return false;
  const int64_t longest = std::max(tokens, *std::max_element(rows.begin(), rows.end()));
  return limits_.batch_tokens == 0 || (count + 1) * padded_length(longest) <= limits_.batch_tokens;
}

}  // namespace vlmtune
