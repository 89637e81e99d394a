#include "lib/memory/caching_allocator.h"

#include <algorithm>
#include <bit>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

// c10/core/AllocatorConfig.h
constexpr int64_t kMinBlockSize = 512;
constexpr int64_t kSmallSize = 1 << 20;    // up to here a request is small
constexpr int64_t kSmallBuffer = 2 << 20;  // segment of small blocks
constexpr int64_t kMinLargeAlloc = 10 << 20;
constexpr int64_t kLargeBuffer = 20 << 20;  // segment of blocks below kMinLargeAlloc
constexpr int64_t kRoundLarge = 2 << 20;

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

struct CachingAllocator::Block {
  int64_t address = 0, size = 0;
  bool used = false, small = false;
  Block *previous = nullptr, *next = nullptr;  ///< neighbours in the same segment
};

bool CachingAllocator::BySizeThenAddress::operator()(const Block* a, const Block* b) const {
  return a->size != b->size ? a->size < b->size : a->address < b->address;
}

CachingAllocator::CachingAllocator(const CachingAllocatorOptions& options) : options_(options) {}
CachingAllocator::~CachingAllocator() = default;

int64_t CachingAllocator::round(int64_t bytes) const {
  bytes += options_.padding;
  const int64_t divisions = options_.roundup_power2_divisions;
  if (bytes < kMinBlockSize) return kMinBlockSize;
  if (divisions > 1 && bytes > kMinBlockSize * divisions) {
    const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
    return power == bytes ? bytes : round_up(bytes, std::max<int64_t>(1, power / divisions));
  }
  return round_up(bytes, kMinBlockSize);
}

CachingAllocator::Block* CachingAllocator::find_cached(Pool& pool, int64_t size) {
  Block key;
  key.size = size;
  key.address = std::numeric_limits<int64_t>::min();
  const auto best = pool.cached.lower_bound(&key);
  if (best == pool.cached.end()) return nullptr;
  Block* block = *best;
  const int64_t max_split = options_.max_split_size;
  if (size < max_split && block->size >= max_split) return nullptr;
  if (size >= max_split && block->size >= size + kLargeBuffer) return nullptr;
  pool.cached.erase(best);
  return block;
}

CachingAllocator::Block* CachingAllocator::new_segment(Pool& pool, int64_t size) {
  auto owned = std::make_unique<Block>();
  Block* block = owned.get();
  block->size = size <= kSmallSize ? kSmallBuffer : size < kMinLargeAlloc ? kLargeBuffer : round_up(size, kRoundLarge);
  block->small = &pool == &small_;
  block->address = next_address_;
  next_address_ += block->size;
  if (reserved_ + block->size > options_.capacity) empty_cache();
  reserved_ += block->size;
  blocks_[block] = std::move(owned);
  return block;
}

CachingAllocator::Block* CachingAllocator::grow_segment(Pool& pool, int64_t size) {
  constexpr int64_t kRange = int64_t{1} << 50;  // far more than any device has
  if (pool.range_begin < 0) {
    pool.range_begin = pool.range_end = &pool == &small_ ? kRange : 2 * kRange;
  }
  const int64_t page = &pool == &small_ ? kSmallBuffer : kLargeBuffer;
  Block* block = pool.last;
  if (block != nullptr && !block->used) {  // the free tail becomes part of the new block
    pool.cached.erase(block);
  } else {
    auto owned = std::make_unique<Block>();
    block = owned.get();
    block->address = pool.range_end;
    block->small = &pool == &small_;
    block->previous = pool.last;
    if (pool.last != nullptr) pool.last->next = block;
    pool.last = block;
    blocks_[block] = std::move(owned);
  }
  const int64_t mapped = round_up(size - block->size, page);
  block->size += mapped;
  pool.range_end += mapped;
  reserved_ += mapped;
  return block;
}

void CachingAllocator::split(Pool& pool, Block* block, int64_t size) {
  auto owned = std::make_unique<Block>();
  Block* rest = owned.get();
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->small = block->small;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  if (pool.last == block) pool.last = rest;
  block->next = rest;
  block->size = size;
  pool.cached.insert(rest);
  blocks_[rest] = std::move(owned);
}

int64_t CachingAllocator::allocate(uint64_t id, int64_t bytes) {
  if (bytes == 0) return 0;
  const int64_t size = round(bytes);
  const bool small = size <= kSmallSize;
  Pool& pool = small ? small_ : large_;
  Block* block = find_cached(pool, size);
  if (block == nullptr) block = options_.expandable_segments ? grow_segment(pool, size) : new_segment(pool, size);
  const int64_t rest = block->size - size;
  const bool splits = small || options_.expandable_segments ? rest >= kMinBlockSize
                                                            : size < options_.max_split_size && rest > kSmallSize;
  if (splits) split(pool, block, size);
  block->used = true;
  const bool is_new = used_.emplace(id, block).second;
  VLMTUNE_CHECK(is_new, "allocation {} is alive already", id);
  allocated_ += block->size;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return block->size;
}

void CachingAllocator::absorb_next(Pool& pool, Block* block) {
  Block* next = block->next;
  block->size += next->size;
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  if (pool.last == next) pool.last = block;
  blocks_.erase(next);
}

void CachingAllocator::free(uint64_t id) {
  const auto at = used_.find(id);
  if (at == used_.end()) return;
  Block* block = at->second;
  used_.erase(at);
  allocated_ -= block->size;
  Pool& pool = block->small ? small_ : large_;
  block->used = false;
  if (block->next != nullptr && !block->next->used) {
    pool.cached.erase(block->next);
    absorb_next(pool, block);
  }
  if (block->previous != nullptr && !block->previous->used) {
    block = block->previous;
    pool.cached.erase(block);
    absorb_next(pool, block);
  }
  pool.cached.insert(block);
}

void CachingAllocator::empty_cache() {
  if (options_.expandable_segments) return;  // pages are unmapped from the tail only; nothing relies on it here
  for (Pool* pool : {&small_, &large_}) {
    for (auto at = pool->cached.begin(); at != pool->cached.end();) {
      Block* block = *at;
      if (block->previous != nullptr || block->next != nullptr) {
        ++at;
        continue;
      }
      at = pool->cached.erase(at);
      reserved_ -= block->size;
      blocks_.erase(block);
    }
  }
}

}  // namespace vlmtune
