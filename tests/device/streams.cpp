#include "tests/device/streams.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

using Lock = std::lock_guard<std::recursive_mutex>;

Streams::Id Streams::make() {
  const Lock lock(mutex_);
  return ++last_;
}

void Streams::queue(Id stream, std::set<const void*> memory, std::function<void()> job) {
  const Lock lock(mutex_);
  queues_[stream].jobs.push_back({std::move(memory), std::move(job)});
}

void Streams::run(Id stream) { run_until(now(stream)); }

void Streams::run_all() {
  const Lock lock(mutex_);
  for (Id stream = 0; stream <= last_; ++stream) run(stream);
}

Streams::Event Streams::now(Id stream) {
  const Lock lock(mutex_);
  return {stream, queues_[stream].jobs.size()};
}

bool Streams::is_over(const Event& event) {
  const Lock lock(mutex_);
  return queues_[event.stream].done >= event.place;
}

void Streams::run_until(const Event& event) {
  const Lock lock(mutex_);
  auto& queue = queues_[event.stream];
  while (queue.done < event.place) std::exchange(queue.jobs[queue.done++].run, nullptr)();
}

void Streams::wait(Id stream, const Event& event) {
  queue(stream, {}, [this, event] { run_until(event); });
}

void Streams::allocated(const void* memory, Id stream) {
  const Lock lock(mutex_);
  known_to_[memory] = {stream};
}

void Streams::record(const void* memory, Id stream) {
  const Lock lock(mutex_);
  known_to_[memory].insert(stream);
}

void Streams::freed(const void* memory, std::function<void()> release) {
  const Lock lock(mutex_);
  const std::shared_ptr<void> needed(nullptr, [release = std::move(release)](void*) { release(); });
  const auto known = known_to_.find(memory);
  for (auto& [stream, queue] : queues_)
    for (size_t i = queue.done; i < queue.jobs.size(); ++i) {
      auto& job = queue.jobs[i];
      if (!job.memory.contains(memory)) continue;
      if (known != known_to_.end() && !known->second.contains(stream)) {
        std::fprintf(stderr, "memory was freed while stream %lld, unknown to its allocator, had a copy of it to make\n",
                     static_cast<long long>(stream));
        std::abort();
      }
      job.run = [run = std::move(job.run), needed] { run(); };
    }
  if (known != known_to_.end()) known_to_.erase(known);
}
