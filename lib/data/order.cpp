#include "lib/data/order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

/// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine, which std::shuffle does not promise.
class Random {
 public:
  Random(uint64_t seed, uint64_t epoch, uint64_t stream) : state_(mix(mix(mix(seed) + epoch) + stream)) {}

  /// Uniform in [0, n).
  uint64_t below(uint64_t n) {
    const uint64_t limit = std::numeric_limits<uint64_t>::max() - std::numeric_limits<uint64_t>::max() % n;
    for (;;) {
      const uint64_t x = next();
      if (x < limit) return x % n;
    }
  }

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  static uint64_t mix(uint64_t z) {
    z += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t next() {
    const uint64_t value = mix(state_);
    state_ += 0x9E3779B97F4A7C15;
    return value;
  }
  uint64_t state_;
};

using Rows = std::vector<uint32_t>;

int64_t fraction_rows(const Dataset::FileRows& file) {
  return std::llround((file.weight - std::floor(file.weight)) * static_cast<double>(file.count));
}

/// The rows of the epoch by file, before any shuffling.
Rows weighted_rows(const Dataset& dataset, const OrderOptions& options, int64_t epoch) {
  Rows rows;
  uint64_t stream = 1;
  for (const Dataset::FileRows& file : dataset.files()) {
    Rows all(static_cast<size_t>(file.count));
    std::iota(all.begin(), all.end(), static_cast<uint32_t>(file.first));
    for (int64_t i = 0; i < static_cast<int64_t>(file.weight); ++i) rows.insert(rows.end(), all.begin(), all.end());
    if (const int64_t count = fraction_rows(file); count > 0) {
      Random(options.seed, static_cast<uint64_t>(epoch), stream).shuffle(all);
      all.resize(static_cast<size_t>(count));
      std::sort(all.begin(), all.end());
      rows.insert(rows.end(), all.begin(), all.end());
    }
    ++stream;
  }
  return rows;
}

/// LLaVA's split_to_even_chunks: rows, longest first, go to the chunk that is shortest so far.
void append_even_chunks(const Dataset& dataset, const Rows& block, size_t num_chunks, Rows& out) {
  std::vector<Rows> chunks(num_chunks);
  if (block.size() % num_chunks != 0) {
    for (size_t i = 0; i < block.size(); ++i) chunks[i % num_chunks].push_back(block[i]);
  } else {
    std::vector<int64_t> lengths(num_chunks, 0);
    for (const uint32_t row : block) {
      const auto shortest = static_cast<size_t>(std::min_element(lengths.begin(), lengths.end()) - lengths.begin());
      chunks[shortest].push_back(row);
      lengths[shortest] += dataset.row_bytes(row);
      if (chunks[shortest].size() == block.size() / num_chunks) lengths[shortest] = std::numeric_limits<int64_t>::max();
    }
  }
  for (const Rows& chunk : chunks) out.insert(out.end(), chunk.begin(), chunk.end());
}

/// Shuffled rows in blocks of group_size, each sorted by length and spread over its micro-batches.
Rows group_by_length(const Dataset& dataset, const OrderOptions& options, const Rows& rows) {
  Rows out;
  out.reserve(rows.size());
  const auto group = static_cast<size_t>(options.group_size);
  for (size_t begin = 0; begin < rows.size(); begin += group) {
    Rows block(rows.begin() + static_cast<std::ptrdiff_t>(begin),
               rows.begin() + static_cast<std::ptrdiff_t>(std::min(begin + group, rows.size())));
    std::stable_sort(block.begin(), block.end(),
                     [&](uint32_t a, uint32_t b) { return dataset.row_bytes(a) > dataset.row_bytes(b); });
    append_even_chunks(dataset, block, static_cast<size_t>(options.num_chunks), out);
  }
  return out;
}

Rows group_by_modality(const Dataset& dataset, const OrderOptions& options, const Rows& rows, Random& random) {
  Rows with_image, text_only;
  for (const uint32_t row : rows) (dataset.has_image(row) ? with_image : text_only).push_back(row);
  if (with_image.empty() || text_only.empty()) return group_by_length(dataset, options, rows);
  const auto group = static_cast<size_t>(options.group_size);
  std::vector<Rows> blocks;
  Rows rest;
  for (const Rows* kind : {&with_image, &text_only}) {
    const Rows grouped = group_by_length(dataset, options, *kind);
    // LLaVA keeps the last block of each kind for the end, also when it is full.
    const size_t whole = (grouped.size() - 1) / group * group;
    for (size_t begin = 0; begin < whole; begin += group)
      blocks.emplace_back(grouped.begin() + static_cast<std::ptrdiff_t>(begin),
                          grouped.begin() + static_cast<std::ptrdiff_t>(begin + group));
    rest.insert(rest.end(), grouped.begin() + static_cast<std::ptrdiff_t>(whole), grouped.end());
  }
  if (options.shuffle) random.shuffle(blocks);
  std::sort(rest.begin(), rest.end());
  Rows out;
  out.reserve(rows.size());
  for (const Rows& block : blocks) out.insert(out.end(), block.begin(), block.end());
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace

int64_t epoch_rows(const Dataset& dataset) {
  int64_t rows = 0;
  for (const Dataset::FileRows& file : dataset.files())
    rows += static_cast<int64_t>(file.weight) * file.count + fraction_rows(file);
  return rows;
}

std::vector<uint32_t> epoch_order(const Dataset& dataset, const OrderOptions& options, int64_t epoch) {
  if (dataset.size() > std::numeric_limits<uint32_t>::max())
    throw input_error("the data set has {} rows, more than the {} that fit", dataset.size(),
                      std::numeric_limits<uint32_t>::max());
  VLMTUNE_CHECK(options.group_size >= 1 && options.num_chunks >= 1, "empty groups");
  Rows rows = weighted_rows(dataset, options, epoch);
  Random random(options.seed, static_cast<uint64_t>(epoch), 0);
  if (options.shuffle) random.shuffle(rows);
  return options.group_by_modality_length ? group_by_modality(dataset, options, rows, random) : rows;
}

}  // namespace vlmtune
