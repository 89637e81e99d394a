#include "lib/data/loader.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "lib/base/errors.h"
#include "lib/base/interrupt.h"
#include "lib/base/log.h"
#include "lib/data/packing.h"

namespace vlmtune {
namespace {

/// What became of one place in the order.
struct Item {
  int64_t row = 0;
  Example example;
  Skip skip = Skip::kNone;
  std::string bad;             // why the row cannot be used; empty for a good one
  std::exception_ptr failure;  // anything that is not the row's fault
  bool done = false;
};

Item build_item(const Dataset& dataset, const ExampleBuilder& builder, int64_t row) {
  Item item;
  item.row = row;
  try {
    item.example = builder.build(dataset.row(row), &item.skip);
    item.example.row = row;
  } catch (const UserError& error) {
    if (error.code() == ExitCode::kInput)
      item.bad = error.what();
    else
      item.failure = std::current_exception();
  } catch (...) {
    item.failure = std::current_exception();
  }
  item.done = true;
  return item;
}

/// The rows of all epochs in order, built ahead by worker threads and handed out in that order.
class ItemStream {
 public:
  ItemStream(const Dataset& dataset, const ExampleBuilder& builder, const LoaderOptions& options, OrderOptions order)
      : dataset_(dataset), builder_(builder), options_(options), order_(order) {}

  ~ItemStream() { stop(); }

  /// Starts over at a place in the order.
  void restart(int64_t epoch, int64_t position) {
    stop();
    queue_.clear();
    ready_bytes_ = building_ = 0;
    issue_epoch_ = epoch;
    issue_position_ = position;
    rows_ = {};
  }

  /// The step ahead takes about so many samples.
  void expect(int64_t samples) {
    const std::lock_guard lock(mutex_);
    samples_of_a_step_ = samples;
  }

  int64_t most_ready_bytes() {
    const std::lock_guard lock(mutex_);
    return most_ready_bytes_;
  }

  /// The next item.
  Item take() {
    if (options_.num_workers <= 0) return build_item(dataset_, builder_, issue());
    if (workers_.empty()) start();
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !queue_.empty() && queue_.front()->done; });
    const std::shared_ptr<Item> item = std::move(queue_.front());
    queue_.pop_front();
    ready_bytes_ -= item->example.num_bytes();
    lock.unlock();
    room_.notify_all();
    return std::move(*item);
  }

 private:
  void start() {
    stopping_ = false;
    for (int i = 0; i < options_.num_workers; ++i) workers_.emplace_back([this] { work(); });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  /// The row at the place to build next; moves on. Under the lock when there are workers.
  int64_t issue() {
    if (rows_.empty() || issue_position_ == static_cast<int64_t>(rows_.size())) {
      if (!rows_.empty()) {
        ++issue_epoch_;
        issue_position_ = 0;
      }
      rows_ = epoch_order(dataset_, order_, issue_epoch_);
    }
    return rows_[static_cast<size_t>(issue_position_++)];
  }

  bool ended() const {
    if (options_.num_epochs < 0) return false;
    const bool whole = !rows_.empty() && issue_position_ == static_cast<int64_t>(rows_.size());
    return issue_epoch_ + (whole ? 1 : 0) >= options_.num_epochs;
  }

  /// Samples under way are taken to be as large as the largest so far.
  bool has_room() const {
    if (queue_.empty()) return true;
    const int64_t most = std::max<int64_t>(kStepsAhead * samples_of_a_step_, 2 * options_.num_workers);
    return static_cast<int64_t>(queue_.size()) < most &&
           ready_bytes_ + (building_ + 1) * largest_ <= options_.prefetch_bytes;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [&] { return stopping_ || (!ended() && has_room()); });
      if (stopping_) return;
      const auto item = std::make_shared<Item>();
      queue_.push_back(item);
      ++building_;
      try {
        item->row = issue();
      } catch (...) {
        item->failure = std::current_exception();
      }
      if (!item->failure) {
        lock.unlock();
        Item built = build_item(dataset_, builder_, item->row);
        lock.lock();
        *item = std::move(built);
      }
      item->done = true;
      --building_;
      ready_bytes_ += item->example.num_bytes();
      most_ready_bytes_ = std::max(most_ready_bytes_, ready_bytes_);
      largest_ = std::max(largest_, item->example.num_bytes());
      ready_.notify_all();
    }
  }

  const Dataset& dataset_;
  const ExampleBuilder& builder_;
  const LoaderOptions& options_;
  const OrderOptions order_;

  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<std::thread> workers_;
  std::deque<std::shared_ptr<Item>> queue_;  // in order; the front is handed out first
  std::vector<uint32_t> rows_;               // order of issue_epoch_
  int64_t issue_epoch_ = 0, issue_position_ = 0;
  int64_t ready_bytes_ = 0, most_ready_bytes_ = 0, building_ = 0, largest_ = 0;
  int64_t samples_of_a_step_ = options_.micro_batch_size * options_.accumulation(0);
  bool stopping_ = false;
};

}  // namespace

class BatchLoader::Impl {
 public:
  Impl(Dataset dataset, const ExampleBuilder& builder, LoaderOptions options)
      : dataset_(std::move(dataset)),
        builder_(builder),
        options_(std::move(options)),
        rows_per_epoch_(epoch_rows(dataset_)),
        stream_(dataset_, builder_, options_, order_options()) {
    VLMTUNE_CHECK(options_.micro_batch_size >= 1, "empty micro-batches");
    if (rows_per_epoch_ < 1) throw input_error("the data files' weights leave no row for an epoch");
  }

  std::optional<StepBatch> next() {
    StepFiller filler = new_step(step_);
    StepBatch batch;
    while (!filler.full()) {
      if (position_ == rows_per_epoch_) {
        if (batch.samples > 0) break;
        if (epoch_samples_ == 0)
          throw input_error("no row of the data set can be trained on ({} damaged, {} without labels, {} too long)",
                            counts_.bad, counts_.no_labels, counts_.too_long);
        ++epoch_;
        position_ = epoch_samples_ = 0;
      }
      if (options_.num_epochs >= 0 && epoch_ >= options_.num_epochs) return std::nullopt;
      Item item = waiting_ ? *std::exchange(waiting_, std::nullopt) : stream_.take();
      if (accept(item)) {
        const auto place = filler.place(static_cast<int64_t>(item.example.ids.size()));
        if (!place) {
          waiting_ = std::move(item);
          break;
        }
        count(batch, item.example);
        if (place->micro_batch == batch.micro.size()) batch.micro.emplace_back();
        auto& rows = batch.micro[place->micro_batch];
        if (place->row == rows.size())
          rows.push_back(std::move(item.example));
        else
          append_sample(rows[place->row], std::move(item.example));
      }
      ++position_;
    }
    epoch_samples_ += batch.samples;
    batch.epoch = epoch_;
    batch.position_after = position_;
    ++step_;
    stream_.expect(batch.samples);
    return batch;
  }

  void seek(int64_t epoch, int64_t position, int64_t step) {
    if (epoch < 0 || position < 0 || position > rows_per_epoch_ || step < 0)
      throw input_error("position {} of epoch {} is not in the data set; have the data files changed?", position,
                        epoch);
    epoch_ = epoch;
    position_ = position;
    step_ = step;
    waiting_.reset();
    epoch_samples_ = position;  // a run that came this far had usable rows
    if (position == rows_per_epoch_)
      stream_.restart(epoch + 1, 0);
    else
      stream_.restart(epoch, position);
  }

  int64_t total_steps(int64_t epochs) {
    const bool by_length = options_.packing || options_.micro_batch_tokens > 0;
    if (by_length && lengths_.empty()) lengths_ = measure_rows();
    int64_t step = 0;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) step += by_length ? steps_by_length(epoch, step) : steps(step);
    return step;
  }

  LoaderCounts counts() {
    counts_.ready_bytes = stream_.most_ready_bytes();
    return counts_;
  }

 private:
  int64_t accumulation(int64_t step) const {
    const int count = options_.accumulation(step);
    VLMTUNE_CHECK(count >= 1, "step {} has no micro-batches", step);
    return count;
  }

  StepFiller new_step(int64_t step) const {
    const int64_t tokens = options_.micro_batch_tokens;
    return StepFiller({.micro_batches = accumulation(step),
                       .rows = tokens > 0 ? std::numeric_limits<int64_t>::max() : options_.micro_batch_size,
                       .row_tokens = options_.packing ? builder_.options().max_length : 0,
                       .batch_tokens = tokens});
  }

  /// Steps of an epoch that begins with step `first`.
  int64_t steps(int64_t first) const {
    int64_t step = first;
    for (int64_t left = rows_per_epoch_; left > 0; ++step) left -= accumulation(step) * options_.micro_batch_size;
    return step - first;
  }

  int64_t steps_by_length(int64_t epoch, int64_t first) const {
    int64_t step = first;
    std::optional<StepFiller> filler;
    for (const uint32_t row : epoch_order(dataset_, order_options(), epoch)) {
      if (lengths_[row] == 0) continue;
      if (filler && filler->place(lengths_[row])) continue;
      filler = new_step(step++);
      filler->place(lengths_[row]);
    }
    return step - first;
  }

  /// Tokens of each row; 0 for one that cannot be used.
  std::vector<int64_t> measure_rows() const {
    std::vector<int64_t> lengths(static_cast<size_t>(dataset_.size()));
    std::atomic<int64_t> next = 0;
    const auto measure = [&] {
      for (int64_t row; (row = next++) < dataset_.size() && interrupt_signal() == 0;) {
        try {
          Skip skip = Skip::kNone;
          lengths[static_cast<size_t>(row)] =
              static_cast<int64_t>(builder_.measure(dataset_.row(row), &skip).ids.size());
        } catch (const UserError&) {  // next() names it
        }
      }
    };
    std::vector<std::thread> workers;
    for (int i = 0; i < options_.num_workers; ++i) workers.emplace_back(measure);
    if (workers.empty()) measure();
    for (std::thread& worker : workers) worker.join();
    return lengths;
  }

  OrderOptions order_options() const {
    OrderOptions order;
    order.seed = options_.seed;
    order.shuffle = options_.shuffle;
    order.group_by_modality_length = options_.group_by_modality_length;
    // How many rows a budget of tokens makes a step of is not known: blocks of many, sorted as a whole.
    constexpr int64_t kManyRows = 64;
    order.num_chunks = options_.micro_batch_tokens > 0 ? 1 : accumulation(0);
    order.group_size =
        options_.micro_batch_tokens > 0 ? accumulation(0) * kManyRows : order.num_chunks * options_.micro_batch_size;
    return order;
  }

  /// Whether the item is a sample; counts it and complains once when not.
  bool accept(const Item& item) {
    if (item.failure) std::rethrow_exception(item.failure);
    if (item.bad.empty() && item.skip == Skip::kNone) return true;
    if (item.skip == Skip::kTooLong && builder_.options().over_length == OverLength::kError)
      throw input_error("{}: the row is longer than the limit of {} tokens", dataset_.place(item.row),
                        builder_.options().max_length);
    if (!skipped_.insert(item.row).second) return false;
    if (item.skip == Skip::kTooLong) {
      constexpr int64_t kNamed = 10;
      if (++counts_.too_long <= kNamed)
        log_warning("{}: left out, longer than {} tokens", dataset_.place(item.row), builder_.options().max_length);
      if (counts_.too_long == kNamed) log_warning("further rows that are too long are counted without being named");
      return false;
    }
    const std::string reason =
        item.bad.empty() ? dataset_.place(item.row) + ": the row has no token to train on" : item.bad;
    ++(item.bad.empty() ? counts_.no_labels : counts_.bad);
    log_warning("skipped: {}", reason);
    const double budget = options_.bad_sample_budget * static_cast<double>(dataset_.size());
    if (static_cast<double>(counts_.bad + counts_.no_labels) > budget)
      throw input_error("{} of {} rows are unusable, more than the bad_sample_budget of {}; the last one: {}",
                        counts_.bad + counts_.no_labels, dataset_.size(), options_.bad_sample_budget, reason);
    return false;
  }

  static void count(StepBatch& batch, const Example& example) {
    batch.samples += 1;
    batch.tokens += static_cast<int64_t>(example.ids.size());
    batch.image_tokens += example.image_tokens;
    batch.label_tokens += example.label_tokens;
  }

  const Dataset dataset_;
  const ExampleBuilder& builder_;
  const LoaderOptions options_;
  const int64_t rows_per_epoch_;
  ItemStream stream_;
  int64_t epoch_ = 0, position_ = 0, step_ = 0;
  int64_t epoch_samples_ = 0;     // taken from the current epoch
  std::optional<Item> waiting_;   // the sample that did not fit into the step before
  std::vector<int64_t> lengths_;  // of measure_rows
  std::unordered_set<int64_t> skipped_;
  LoaderCounts counts_;
};

BatchLoader::BatchLoader(Dataset dataset, const ExampleBuilder& builder, LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(dataset), builder, std::move(options))) {}
BatchLoader::~BatchLoader() = default;
std::optional<StepBatch> BatchLoader::next() { return impl_->next(); }
void BatchLoader::seek(int64_t epoch, int64_t position, int64_t step) { impl_->seek(epoch, position, step); }
int64_t BatchLoader::total_steps(int64_t epochs) const { return impl_->total_steps(epochs); }
LoaderCounts BatchLoader::counts() const { return impl_->counts(); }

}  // namespace vlmtune
