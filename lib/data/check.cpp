#include "lib/data/check.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "lib/base/interrupt.h"
#include "lib/base/log.h"
#include "lib/data/damage.h"

namespace vlmtune {
namespace {

/// What is known of one row.
struct Measured {
  std::string complaint;  // empty: none
  Skip skip = Skip::kNone;
  bool bad = false;
  int64_t length = 0, tokens = 0, image_tokens = 0, label_tokens = 0, images = 0;
};

Measured measure(const Dataset& dataset, const ExampleBuilder& builder, int64_t i) {
  Measured measured;
  const auto damage = damage_found([&] {
    const auto row = dataset.row(i);
    const auto example = builder.measure(row, &measured.skip);
    measured.tokens = static_cast<int64_t>(example.ids.size());
    measured.image_tokens = example.image_tokens;
    measured.label_tokens = example.label_tokens;
    measured.images = static_cast<int64_t>(example.image_starts.size());
    const bool whole = measured.skip == Skip::kNone && !example.truncated;
    measured.length = whole ? measured.tokens : builder.length_estimate(row);
    const auto& options = builder.options();
    if (measured.skip == Skip::kNoLabels)
      measured.complaint = fmt::format("{}: the row has no token to train on", row.place);
    else if (measured.skip == Skip::kTooLong && options.over_length == OverLength::kError)
      measured.complaint = fmt::format("{}: the row is {} tokens long, more than the limit of {}", row.place,
                                       measured.length, options.max_length);
  });
  if (damage) {
    measured.bad = true;
    measured.complaint = *damage;
  }
  return measured;
}

/// Calls work(i) for every i in [begin, end) on several threads; the first failure is thrown here.
template <typename Work>
void in_parallel(int64_t begin, int64_t end, int num_workers, const Work& work) {
  std::atomic<int64_t> next = begin;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (int64_t i; (i = next++) < end;) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      next = end;
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < num_workers; ++i) workers.emplace_back(run);
  if (workers.empty()) run();
  for (std::thread& worker : workers) worker.join();
  if (failure) std::rethrow_exception(failure);
}

void count(DatasetCheck& check, const Measured& row, int64_t max_length) {
  ++check.rows;
  if (row.bad) {
    ++check.bad;
    return;
  }
  ++check.lengths[row.length];
  check.too_long += row.length > max_length;
  check.no_labels += row.skip == Skip::kNoLabels;
  if (row.skip != Skip::kNone) return;
  ++check.usable;
  check.text_tokens += row.tokens - row.image_tokens;
  check.image_tokens += row.image_tokens;
  check.label_tokens += row.label_tokens;
  check.images += row.images;
}

double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

/// 1, 2, 5, 10, 20, ...: the first of which `bins` reach `limit`.
int64_t round_width(int64_t limit, int64_t bins) {
  for (int64_t unit = 1;; unit *= 10)
    for (const int64_t width : {unit, 2 * unit, 5 * unit})
      if (width * bins >= limit) return width;
}

/// The length that `share` of the rows do not exceed.
int64_t quantile(const std::map<int64_t, int64_t>& lengths, int64_t rows, double share) {
  int64_t seen = 0;
  for (const auto& [length, count] : lengths) {
    seen += count;
    if (static_cast<double>(seen) >= share * static_cast<double>(rows)) return length;
  }
  return 0;
}

std::string histogram(const std::map<int64_t, int64_t>& lengths, int64_t rows, int64_t max_length) {
  constexpr int64_t kBins = 10, kBarWidth = 40;
  const int64_t longest = lengths.rbegin()->first;
  const int64_t width = round_width(std::min(longest, max_length), kBins);
  std::map<int64_t, int64_t> bins;  // by their last length
  for (int64_t end = width; end - width < std::min(longest, max_length); end += width)
    bins[std::min(end, max_length)] = 0;
  if (longest > max_length) bins[longest] = 0;
  for (const auto& [length, count] : lengths) bins.lower_bound(length)->second += count;
  int64_t fullest = 0, begin = 0;
  for (const auto& [end, count] : bins) fullest = std::max(fullest, count);
  std::string text;
  for (const auto& [end, count] : bins) {
    const auto bar = static_cast<size_t>((count * kBarWidth + fullest - 1) / fullest);
    text += fmt::format("\n  {:>7} - {:<7} {:<40} {:>9} {:5.1f} %{}", begin, end, std::string(bar, '#'), count,
                        percent(count, rows), end > max_length ? "  beyond data.max_length" : "");
    begin = end + 1;
  }
  return text;
}

}  // namespace

DatasetCheck check_dataset(const Dataset& dataset, const ExampleBuilder& builder, int num_workers) {
  constexpr int64_t kBlock = 4096;  // rows whose findings wait for their turn to be told
  DatasetCheck check;
  ProgressBar progress("checking", "row", dataset.size());
  for (int64_t begin = 0; begin < dataset.size() && interrupt_signal() == 0; begin += kBlock) {
    const int64_t end = std::min(dataset.size(), begin + kBlock);
    std::vector<Measured> block(static_cast<size_t>(end - begin));
    in_parallel(begin, end, num_workers,
                [&](int64_t i) { block[static_cast<size_t>(i - begin)] = measure(dataset, builder, i); });
    for (const auto& row : block) {
      if (!row.complaint.empty()) log_warning("{}", row.complaint);
      count(check, row, builder.options().max_length);
    }
    progress.update(end, "");
  }
  return check;
}

std::string describe_check(const DatasetCheck& check, int64_t max_length) {
  std::string text = fmt::format("{} rows: {} usable, {} bad, {} without labels, {} ({:.1f} %) longer than {} tokens",
                                 check.rows, check.usable, check.bad, check.no_labels, check.too_long,
                                 percent(check.too_long, check.rows), max_length);
  text += fmt::format("\ntokens of usable rows: {} of text, {} of {} pictures; {} are trained", check.text_tokens,
                      check.image_tokens, check.images, check.label_tokens);
  const int64_t measured = check.rows - check.bad;
  if (measured == 0) return text;
  double sum = 0;
  for (const auto& [length, count] : check.lengths) sum += static_cast<double>(length) * static_cast<double>(count);
  text += fmt::format("\nlength of a row in tokens: {:.0f} on average, median {}, 95 % up to {}, longest {}",
                      sum / static_cast<double>(measured), quantile(check.lengths, measured, 0.5),
                      quantile(check.lengths, measured, 0.95), check.lengths.rbegin()->first);
  return text + histogram(check.lengths, measured, max_length);
}

}  // namespace vlmtune
