#include "tests/device/streams.h"

#include <algorithm>
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
  const Lock lock(mutex_);
  queues_[stream].jobs.push_back({{}, [this, event] { run_until(event); }, event});
}

void Streams::allocated(const void* memory, Id stream) {
  const Lock lock(mutex_);
  owners_[memory] = stream;
}

bool Streams::is_waited_for(Id stream, const Event& job) const {
  if (stream == job.stream) return true;
  const auto& queue = queues_.at(stream);
  return std::any_of(queue.jobs.begin() + static_cast<std::ptrdiff_t>(queue.done), queue.jobs.end(),
                     [&](const Job& one) {
                       return one.waits_for && one.waits_for->stream == job.stream && one.waits_for->place >= job.place;
                     });
}

void Streams::freed(const void* memory, std::function<void()> release) {
  const Lock lock(mutex_);
  const std::shared_ptr<void> needed(nullptr, [release = std::move(release)](void*) { release(); });
  const auto owner = owners_.find(memory);
  for (auto& [stream, queue] : queues_)
    for (size_t i = queue.done; i < queue.jobs.size(); ++i) {
      auto& job = queue.jobs[i];
      if (!job.memory.contains(memory)) continue;
      if (owner != owners_.end() && !is_waited_for(owner->second, {stream, i + 1})) {
        std::fprintf(stderr, "memory was freed before its stream waits for the copy that stream %lld has to make\n",
                     static_cast<long long>(stream));
        std::abort();
      }
      job.run = [run = std::move(job.run), needed] { run(); };
    }
  if (owner != owners_.end()) owners_.erase(owner);
}
