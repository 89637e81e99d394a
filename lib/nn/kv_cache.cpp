#include "lib/nn/kv_cache.h"

#include "lib/memory/scope.h"

namespace vlmtune {
namespace {

/// A copy of `old` (its first `length` tokens) with room for `capacity` tokens.
Tensor grow(const Tensor& old, const Tensor& like, int64_t length, int64_t capacity) {
  const MemoryScope scope(MemoryCategory::kKvCache);
  auto buffer = torch::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
  if (length > 0) buffer.narrow(2, 0, length).copy_(old.narrow(2, 0, length));
  return buffer;
}

}  // namespace

void KvCache::make_room(Layer& layer, const Tensor& like, int64_t tokens) {
  constexpr int64_t kStep = 64;
  if (layer.keys.defined() && layer.keys.size(2) >= tokens) return;
  const int64_t capacity =
      growth_ == Growth::kExact ? tokens : std::max(reserved_, (tokens + kStep - 1) / kStep * kStep);
  layer.keys = grow(layer.keys, like, layer.length, capacity);
  layer.values = grow(layer.values, like, layer.length, capacity);
}

std::pair<Tensor, Tensor> KvCache::append(int64_t layer_index, const Tensor& k, const Tensor& v) {
  auto& layer = layers_.at(static_cast<size_t>(layer_index));
  const int64_t total = layer.length + k.size(2);
  make_room(layer, k, total);
  layer.keys.narrow(2, layer.length, k.size(2)).copy_(k);
  layer.values.narrow(2, layer.length, v.size(2)).copy_(v);
  layer.length = total;
  return {layer.keys.narrow(2, 0, total), layer.values.narrow(2, 0, total)};
}

void KvCache::advance(int64_t tokens) {
  for (auto& layer : layers_) {
    make_room(layer, layer.keys, layer.length + tokens);
    layer.length += tokens;
  }
}

void KvCache::truncate(int64_t tokens) {
  for (auto& layer : layers_) layer.length = std::min(layer.length, tokens);
}

}  // namespace vlmtune
