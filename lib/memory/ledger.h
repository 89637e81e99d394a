// The account of one device's memory: every byte alive has a category and a module, every peak belongs to a phase.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/memory/caching_allocator.h"
#include "lib/memory/category.h"

namespace vlmtune {

struct MemoryPeak {
  int64_t bytes = 0;
  CategoryBytes by_category{};
  std::map<std::string, CategoryBytes> by_module;  ///< filled when the peak is asked for
};

struct MemoryMoment {
  CategoryBytes by_category{};
  uint16_t phase = 0;  ///< index into `phases()`
};

class MemoryLedger {
 public:
  /// With a simulated allocator each allocation counts with its whole block, as CUDA's statistics count it.
  explicit MemoryLedger(const std::optional<CachingAllocatorOptions>& simulated = std::nullopt);

  /// New memory of `bytes` at the key, for the category and module of the current scopes.
  void allocated(uint64_t key, int64_t bytes);
  void freed(uint64_t key);
  /// Moves memory that is alive to another category and to the module of the current scope; unknown keys are left alone.
  void move(uint64_t key, MemoryCategory category);
  /// From now on `check_room` refuses to go beyond `bytes`.
  void set_limit(int64_t bytes) { limit_ = bytes; }
  /// Errors: UserError (out of memory) when `bytes` more would be beyond the limit.
  void check_room(int64_t bytes) const;
  /// Bytes that no allocator hands out, such as weights used in their mapped file; below 0 when they go. Errors: as check_room.
  void add_external(MemoryCategory category, int64_t bytes);

  /// Phases are counted apart; coming back to one continues it. Returns the phase before.
  std::string enter_phase(std::string_view name);
  /// Keeps a moment for each allocation and release.
  void record_timeline() { records_ = true; }
  /// From now on the peak of the window counts from what is alive.
  void reset_window();

  struct Phase {
    std::string name;
    MemoryPeak peak;
  };
  int64_t bytes() const { return now_; }
  int64_t window_peak() const { return window_peak_; }
  std::vector<Phase> phases() const;
  const std::vector<MemoryMoment>& timeline() const { return timeline_; }
  const CachingAllocator* simulator() const { return simulator_.get(); }

 private:
  struct Entry {
    int64_t bytes;
    MemoryCategory category;
    uint16_t module;
  };
  struct PhaseState {
    std::string name;
    int64_t peak = 0;
    CategoryBytes by_category{};
    std::vector<CategoryBytes> by_module;
  };
  void change(MemoryCategory category, uint16_t module, int64_t bytes);
  void note();

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> alive_;
  std::unique_ptr<CachingAllocator> simulator_;
  int64_t now_ = 0, window_peak_ = 0, limit_ = std::numeric_limits<int64_t>::max();
  CategoryBytes by_category_{};
  std::vector<CategoryBytes> by_module_;
  std::vector<PhaseState> phases_;
  size_t phase_ = 0;
  bool records_ = false;
  std::vector<MemoryMoment> timeline_;
};

}  // namespace vlmtune
