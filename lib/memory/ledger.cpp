#include "lib/memory/ledger.h"

#include <algorithm>

#include "lib/base/bytes.h"
#include "lib/base/errors.h"
#include "lib/memory/scope.h"

namespace vlmtune {

MemoryLedger::MemoryLedger(const std::optional<CachingAllocatorOptions>& simulated) {
  if (simulated) simulator_ = std::make_unique<CachingAllocator>(*simulated);
  phases_.emplace_back().name = "other";
}

void MemoryLedger::change(MemoryCategory category, uint16_t module, int64_t bytes) {
  const auto index = static_cast<size_t>(category);
  now_ += bytes;
  by_category_[index] += bytes;
  if (by_module_.size() <= module) by_module_.resize(module + 1u);
  by_module_[module][index] += bytes;
}

/// Takes note of a peak.
void MemoryLedger::note() {
  window_peak_ = std::max(window_peak_, now_);
  auto& phase = phases_[phase_];
  if (now_ > phase.peak) {
    phase.peak = now_;
    phase.by_category = by_category_;
    phase.by_module = by_module_;
  }
  if (records_) timeline_.push_back({by_category_, static_cast<uint16_t>(phase_)});
}

void MemoryLedger::allocated(uint64_t key, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t counted = simulator_ ? simulator_->allocate(key, bytes) : bytes;
  const Entry entry{counted, MemoryScope::current(), ModuleScope::current()};
  alive_[key] = entry;
  change(entry.category, entry.module, counted);
  note();
}

void MemoryLedger::check_room(int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (bytes <= limit_ - now_) return;
  throw UserError(ExitCode::kMemory,
                  fmt::format("/memory/budget: {} more would exceed {}, {} are in use in phase \"{}\"; "
                              "profile-memory --fit finds a recipe that fits",
                              format_bytes(bytes), format_bytes(limit_), format_bytes(now_), phases_[phase_].name));
}

void MemoryLedger::freed(uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto at = alive_.find(key);
  if (at == alive_.end()) return;
  if (simulator_) simulator_->free(key);
  change(at->second.category, at->second.module, -at->second.bytes);
  alive_.erase(at);
  if (records_) timeline_.push_back({by_category_, static_cast<uint16_t>(phase_)});
}

void MemoryLedger::move(uint64_t key, MemoryCategory category) {
  const std::lock_guard lock(mutex_);
  const auto at = alive_.find(key);
  if (at == alive_.end()) return;
  auto& entry = at->second;
  change(entry.category, entry.module, -entry.bytes);
  entry.category = category;
  entry.module = ModuleScope::current();
  change(entry.category, entry.module, entry.bytes);
}

void MemoryLedger::add_external(MemoryCategory category, int64_t bytes) {
  check_room(bytes);
  const std::lock_guard lock(mutex_);
  change(category, ModuleScope::current(), bytes);
  note();
}

std::string MemoryLedger::enter_phase(std::string_view name) {
  const std::lock_guard lock(mutex_);
  std::string before = phases_[phase_].name;
  const auto at = std::find_if(phases_.begin(), phases_.end(), [&](const auto& phase) { return phase.name == name; });
  phase_ = static_cast<size_t>(at - phases_.begin());
  if (at == phases_.end()) phases_.emplace_back().name = name;
  note();
  return before;
}

void MemoryLedger::reset_window() {
  const std::lock_guard lock(mutex_);
  window_peak_ = now_;
}

std::vector<MemoryLedger::Phase> MemoryLedger::phases() const {
  const std::lock_guard lock(mutex_);
  std::vector<Phase> result;
  for (const auto& state : phases_) {
    Phase phase{state.name, {state.peak, state.by_category, {}}};
    for (size_t module = 0; module < state.by_module.size(); ++module)
      phase.peak.by_module[ModuleScope::name(static_cast<uint16_t>(module))] = state.by_module[module];
    result.push_back(std::move(phase));
  }
  return result;
}

}  // namespace vlmtune
