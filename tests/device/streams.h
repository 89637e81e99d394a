// Streams that are as late as a device may be: what is queued runs when somebody waits for it and no sooner, so that results
// which are used too early are not there. What a device would silently corrupt ends the process.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

class Streams {
 public:
  using Id = int64_t;
  /// A place in the queue of a stream.
  struct Event {
    Id stream = 0;
    size_t place = 0;
  };

  Id make();

  /// `memory` is what the job reads and writes.
  void queue(Id stream, std::set<const void*> memory, std::function<void()> job);
  void run(Id stream);
  void run_all();

  Event now(Id stream);
  bool is_over(const Event& event);
  void run_until(const Event& event);
  /// What is queued on `stream` from here on comes after the event.
  void wait(Id stream, const Event& event);

  /// Memory of the device. Of what was not announced the allocator knows all uses.
  void allocated(const void* memory, Id stream);
  /// Calls `release` once no copy needs the memory.
  void freed(const void* memory, std::function<void()> release);

 private:
  struct Job {
    std::set<const void*> memory;
    std::function<void()> run;
    std::optional<Event> waits_for = {};
  };
  struct Queue {
    std::vector<Job> jobs;
    size_t done = 0;
  };
  std::recursive_mutex mutex_;
  std::map<Id, Queue> queues_;
  /// Whether the job comes before whatever `stream` is told from here on.
  bool is_waited_for(Id stream, const Event& job) const;
  std::map<const void*, Id> owners_;  ///< streams that memory was allocated for, in whose order it is used again
  Id last_ = 0;
};
