// LibTorch's CUDA caching allocator without its memory: which block every request gets, and how many bytes are reserved.
// Rules: c10/cuda/CUDACachingAllocator.cpp (LibTorch 2.11), one stream; torch_npu has the same with padded requests.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <unordered_map>

namespace vlmtune {

/// What PYTORCH_CUDA_ALLOC_CONF can change, in bytes.
struct CachingAllocatorOptions {
  bool expandable_segments = false;
  int64_t max_split_size = std::numeric_limits<int64_t>::max();
  int64_t roundup_power2_divisions = 0;  ///< 0: off
  int64_t padding = 0;                   ///< added to each request before rounding (Ascend: 32)
  /// Bytes of the device that the allocator may reserve; before it would reserve more, it returns its cached segments.
  int64_t capacity = std::numeric_limits<int64_t>::max();
};

class CachingAllocator {
 public:
  explicit CachingAllocator(const CachingAllocatorOptions& options = {});
  ~CachingAllocator();

  /// Takes a block for `bytes` (0: none, returns 0) under `id`, which must be free. Returns the bytes that count as
  /// allocated: those of the whole block.
  int64_t allocate(uint64_t id, int64_t bytes);
  /// Gives the block of `id` back to the cache; an unknown id is a request of 0 bytes.
  void free(uint64_t id);
  /// Returns cached segments that hold no block to the device.
  void empty_cache();

  int64_t allocated_bytes() const { return allocated_; }
  int64_t peak_allocated_bytes() const { return peak_allocated_; }
  int64_t reserved_bytes() const { return reserved_; }
  int64_t peak_reserved_bytes() const { return peak_reserved_; }

 private:
  struct Block;
  struct BySizeThenAddress {
    bool operator()(const Block* a, const Block* b) const;
  };
  /// The small pool (requests up to 1 MiB) or the large one.
  struct Pool {
    std::set<Block*, BySizeThenAddress> cached;
    int64_t range_begin = -1, range_end = 0;  ///< of the one growing segment, when segments are expandable
    Block* last = nullptr;                    ///< the block at its end
  };

  int64_t round(int64_t bytes) const;
  Block* find_cached(Pool& pool, int64_t size);
  Block* new_segment(Pool& pool, int64_t size);
  Block* grow_segment(Pool& pool, int64_t size);
  void split(Pool& pool, Block* block, int64_t size);
  void absorb_next(Pool& pool, Block* block);

  CachingAllocatorOptions options_;
  Pool small_, large_;
  std::unordered_map<uint64_t, Block*> used_;
  std::unordered_map<Block*, std::unique_ptr<Block>> blocks_;
  int64_t next_address_ = 0;
  int64_t allocated_ = 0, peak_allocated_ = 0, reserved_ = 0, peak_reserved_ = 0;
};

}  // namespace vlmtune
