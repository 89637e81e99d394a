#include "kernels/cpu/flash.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/arithmetic.h"
#include "kernels/cpu/brgemm.h"

namespace vlmtune::kernels::cpu {
namespace {

using c10::BFloat16;
using c10::Half;

constexpr int64_t kQueries = 64;  // of a block; the length of a row of scores
constexpr int64_t kKeys = 64;
constexpr int64_t kUnit = 16;  // rows of a block are padded with zeros to a multiple of this
constexpr float kLowest = -1e30f;

int64_t round_up(int64_t n) { return (n + kUnit - 1) / kUnit * kUnit; }

/// `count` rows of x to adjacent ones of C, `padded` in all.
template <typename T, typename C>
VLMTUNE_INLINE void copy_rows_loop(const T* x, int64_t stride, int64_t count, int64_t size, C* y, int64_t padded) {
  for (int64_t row = 0; row < count; ++row) {
    if constexpr (std::is_same_v<T, C>)
      std::memcpy(static_cast<void*>(y + row * size), x + row * stride, static_cast<size_t>(size) * sizeof(C));
    else
      for (int64_t i = 0; i < size; ++i) store(y + row * size + i, load(x[row * stride + i]));
  }
  std::memset(static_cast<void*>(y + count * size), 0, static_cast<size_t>((padded - count) * size) * sizeof(C));
}

/// Stores rows `row` and `row + 1` of a right operand with a row length of kQueries.
VLMTUNE_INLINE void store_operand_rows(float* y, int64_t row, const float* low, const float* high) {
  for (int64_t i = 0; i < kQueries; ++i) y[row * kQueries + i] = low[i];
  for (int64_t i = 0; i < kQueries; ++i) y[(row + 1) * kQueries + i] = high[i];
}
VLMTUNE_INLINE void store_operand_rows(BFloat16* y, int64_t row, const float* low, const float* high) {
  auto* pairs = reinterpret_cast<uint32_t*>(y) + row / 2 * kQueries;
  for (int64_t i = 0; i < kQueries; ++i) {
    BFloat16 a, b;
    store(&a, low[i]);
    store(&b, high[i]);
    pairs[i] = pair(a, b);
  }
}

/// e^x, and nothing at all where it would be too small to matter.
VLMTUNE_INLINE float weight_of(float x) {
  const float power = exponential(x);
  return x < -87.0f ? 0.0f : power;
}

/// Where a block of scores [keys, kQueries] lies among all.
struct Block {
  int64_t first_key, count_keys;  ///< keys that there are; rows behind them are padding
  int64_t first_query;
  bool causal;
  float scale;
  const int32_t* first_keys;  ///< of the block's queries; null: all see key 0
  int64_t count_queries;
  /// The first query of the block that sees the key of a row.
  VLMTUNE_INLINE int64_t first_seeing(int64_t row) const {
    if (row >= count_keys) return kQueries;
    return causal ? std::max<int64_t>(0, first_key + row - first_query) : 0;
  }
  /// The first query behind those that see the key of a row; queries that fill up a block do not matter.
  VLMTUNE_INLINE int64_t end_seeing(int64_t row) const {
    if (first_keys == nullptr) return kQueries;
    return std::upper_bound(first_keys, first_keys + count_queries, first_key + row) - first_keys;
  }
};

// What these loops read is read whether it counts or not, and nothing overlaps: only so do they vectorise.

/// Scales the scores, hides what is not seen, and raises each query's `largest`.
VLMTUNE_INLINE void mask_scores_loop(float* __restrict scores, int64_t rows, const Block& block,
                                     float* __restrict largest) {
  const float scale = block.scale;
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = static_cast<int32_t>(block.first_seeing(row)), end = static_cast<int32_t>(block.end_seeing(row));
    float* s = scores + row * kQueries;
    for (int32_t i = 0; i < kQueries; ++i) {
      const float scaled = s[i] * scale;
      const float value = (i < first) | (i >= end) ? -INFINITY : scaled;
      s[i] = value;
      largest[i] = value > largest[i] ? value : largest[i];
    }
  }
}

/// weights (a right operand [rows, kQueries]) = exp(scores - largest), added to `total`.
template <typename C>
VLMTUNE_INLINE void weigh_loop(const float* __restrict scores, int64_t rows, const float* __restrict largest,
                               float* __restrict total, C* __restrict weights) {
  for (int64_t row = 0; row < rows; row += 2) {
    alignas(64) float low[kQueries], high[kQueries];
    for (int64_t i = 0; i < kQueries; ++i) {
      low[i] = weight_of(scores[row * kQueries + i] - largest[i]);
      high[i] = weight_of(scores[(row + 1) * kQueries + i] - largest[i]);
      total[i] += low[i] + high[i];
    }
    store_operand_rows(weights, row, low, high);
  }
}

/// y [count, size] = x [size, kQueries] transposed, each query times its factor.
template <typename T>
VLMTUNE_INLINE void store_queries_loop(const float* __restrict x, const float* __restrict factor, int64_t count,
                                       int64_t size, T* __restrict y, int64_t stride) {
  constexpr int64_t kChannels = 64;
  alignas(64) float rows[kQueries * kChannels];
  for (int64_t begin = 0; begin < size; begin += kChannels) {
    const int64_t channels = std::min(kChannels, size - begin);
    for (int64_t i = 0; i < channels; ++i)
      for (int64_t query = 0; query < kQueries; ++query)
        rows[query * kChannels + i] = x[(begin + i) * kQueries + query] * factor[query];
    for (int64_t query = 0; query < count; ++query)
      for (int64_t i = 0; i < channels; ++i) store(y + query * stride + begin + i, rows[query * kChannels + i]);
  }
}

/// p = softmax from the scores and log_sum, ds = p * (dp - dot) * scale, both [rows, kQueries]; `ds_operand` is ds as a right
/// operand. `scale` is that of the scores' gradient.
template <typename C>
VLMTUNE_INLINE void differentiate_loop(const float* __restrict scores, const float* __restrict dp, int64_t rows,
                                       const Block& block, const float* __restrict log_sum, const float* __restrict dot,
                                       float scale, C* __restrict p, C* __restrict ds, C* __restrict ds_operand) {
  const float scores_scale = block.scale;
  for (int64_t row = 0; row < rows; row += 2) {
    alignas(64) float gradients[2][kQueries];
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t at = (row + half) * kQueries;
      const auto first = static_cast<int32_t>(block.first_seeing(row + half)),
                 behind = static_cast<int32_t>(block.end_seeing(row + half));
      for (int32_t i = 0; i < kQueries; ++i) {
        const float seen = weight_of(scores[at + i] * scores_scale - log_sum[i]);
        const float weight = (i < first) | (i >= behind) ? 0.0f : seen;
        gradients[half][i] = weight * (dp[at + i] - dot[i]) * scale;
        store(p + at + i, weight);
        store(ds + at + i, gradients[half][i]);
      }
    }
    store_operand_rows(ds_operand, row, gradients[0], gradients[1]);
  }
}

VLMTUNE_CLONES void mask_scores(float* scores, int64_t rows, const Block& block, float* largest) {
  mask_scores_loop(scores, rows, block, largest);
}

#define VLMTUNE_INSTANTIATE(C)                                                                                         \
  VLMTUNE_CLONES void transpose(const C* x, int64_t rows, int64_t size, C* y, int64_t ldy) {                           \
    transpose_loop(x, rows, size, y, ldy);                                                                             \
  }                                                                                                                    \
  VLMTUNE_CLONES void transposed_operand(const C* x, int64_t rows, int64_t size, C* y) {                               \
    transposed_operand_loop(x, rows, size, y, kQueries);                                                               \
  }                                                                                                                    \
  VLMTUNE_CLONES void operand(const C* x, int64_t rows, int64_t size, C* y) { operand_loop(x, rows, size, y); }        \
  VLMTUNE_CLONES void weigh(const float* scores, int64_t rows, const float* largest, float* total, C* weights) {       \
    weigh_loop(scores, rows, largest, total, weights);                                                                 \
  }                                                                                                                    \
  VLMTUNE_CLONES void differentiate(const float* scores, const float* dp, int64_t rows, const Block& block,            \
                                    const float* log_sum, const float* dot, float scale, C* p, C* ds, C* ds_operand) { \
    differentiate_loop(scores, dp, rows, block, log_sum, dot, scale, p, ds, ds_operand);                               \
  }
VLMTUNE_INSTANTIATE(float)
VLMTUNE_INSTANTIATE(BFloat16)
#undef VLMTUNE_INSTANTIATE

#define VLMTUNE_INSTANTIATE(T, C)                                                                                \
  VLMTUNE_CLONES void copy_rows(const T* x, int64_t stride, int64_t count, int64_t size, C* y, int64_t padded) { \
    copy_rows_loop(x, stride, count, size, y, padded);                                                           \
  }
VLMTUNE_INSTANTIATE(float, float)
VLMTUNE_INSTANTIATE(BFloat16, BFloat16)
VLMTUNE_INSTANTIATE(BFloat16, float)
VLMTUNE_INSTANTIATE(Half, float)
#undef VLMTUNE_INSTANTIATE

#define VLMTUNE_INSTANTIATE(T)                                                                              \
  VLMTUNE_CLONES void store_queries(const float* x, const float* factor, int64_t count, int64_t size, T* y, \
                                    int64_t stride) {                                                       \
    store_queries_loop(x, factor, count, size, y, stride);                                                  \
  }                                                                                                         \
  VLMTUNE_CLONES void store_rows(const float* x, int64_t count, int64_t size, T* y, int64_t stride) {       \
    for (int64_t row = 0; row < count; ++row)                                                               \
      for (int64_t i = 0; i < size; ++i) store(y + row * stride + i, x[row * size + i]);                    \
  }                                                                                                         \
  VLMTUNE_CLONES float dot_product(const T* x, const T* y, int64_t size) {                                  \
    return sum_over(size, [&](int64_t i) { return load(x[i]) * load(y[i]); });                              \
  }
VLMTUNE_INSTANTIATE(float)
VLMTUNE_INSTANTIATE(BFloat16)
VLMTUNE_INSTANTIATE(Half)
#undef VLMTUNE_INSTANTIATE

/// Cuts work space into arrays; without memory it only counts the bytes.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}
  template <typename U>
  U* take(int64_t count) {
    auto* taken = reinterpret_cast<U*>(memory_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(U)) + 63) / 64 * 64;
    return taken;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

template <typename C>
struct ForwardScratch {
  C *rows, *k, *v_transposed, *q, *weights;
  float *scores, *sums, *largest, *total;
  Arena arena;

  ForwardScratch(const FlashShape& s, std::byte* memory) : arena(memory) {
    const int64_t keys = round_up(s.keys);
    rows = arena.take<C>(std::max(keys, kQueries) * s.size);
    k = arena.take<C>(keys * s.size);
    v_transposed = arena.take<C>(keys * s.size);
    q = arena.take<C>(s.size * kQueries);
    weights = arena.take<C>(kKeys * kQueries);
    scores = arena.take<float>(keys * kQueries);
    sums = arena.take<float>(s.size * kQueries);
    largest = arena.take<float>(kQueries);
    total = arena.take<float>(kQueries);
  }
};

template <typename C>
struct BackwardScratch {
  C *k, *v, *k_transposed, *q_rows, *dy_rows, *q_transposed, *dy_transposed, *q, *dy, *p, *ds, *ds_operand;
  float *dk, *dv, *scores, *dp, *dq, *log_sum, *dot, *ones;
  Arena arena;

  BackwardScratch(const FlashShape& s, std::byte* memory) : arena(memory) {
    const int64_t keys = round_up(s.keys);
    for (C** x : {&k, &v, &k_transposed}) *x = arena.take<C>(keys * s.size);
    for (C** x : {&q_rows, &dy_rows, &q_transposed, &dy_transposed, &q, &dy}) *x = arena.take<C>(kQueries * s.size);
    for (C** x : {&p, &ds, &ds_operand}) *x = arena.take<C>(kKeys * kQueries);
    for (float** x : {&dk, &dv}) *x = arena.take<float>(keys * s.size);
    for (float** x : {&scores, &dp}) *x = arena.take<float>(kKeys * kQueries);
    dq = arena.take<float>(s.size * kQueries);
    for (float** x : {&log_sum, &dot, &ones}) *x = arena.take<float>(kQueries);
  }
};

/// scores += bias / scale, so that scaling them afterwards adds the bias.
template <typename T>
void add_bias(const FlashBias<T>& bias, int64_t batch, const Block& block, int64_t count_queries, float* scores) {
  if (bias.data == nullptr) return;
  for (int64_t query = 0; query < count_queries; ++query) {
    const T* row = bias.data + batch * bias.batch_stride + (block.first_query + query) * bias.query_stride;
    for (int64_t key = 0; key < block.count_keys; ++key)
      scores[key * kQueries + query] += load(row[(block.first_key + key) * bias.key_stride]) / block.scale;
  }
}

/// Keys that a block of queries sees.
int64_t visible_keys(const FlashShape& s, int64_t first_query, int64_t count) {
  return s.causal ? std::min(s.keys, first_query + count) : s.keys;
}

/// The first keys of a block of queries; null where all see key 0.
const int32_t* first_keys_of(const FirstKeys& keys, int64_t batch, int64_t first_query) {
  return keys.data == nullptr ? nullptr : keys.data + batch * keys.batch_stride + first_query;
}

/// Where the keys begin that a block of queries looks at; the ones before are skipped.
int64_t first_block(const int32_t* first_keys) { return first_keys == nullptr ? 0 : *first_keys / kKeys * kKeys; }

template <typename T, typename C>
void forward(const FlashShape& s, const FlashInputs<T>& in, int64_t pair, HeadRows<T> y, float* log_sum,
             std::byte* memory) {
  const ForwardScratch<C> w(s, memory);
  const int64_t batch = pair / s.kv_heads, kv_head = pair % s.kv_heads, groups = s.heads / s.kv_heads;
  const int64_t keys = round_up(s.keys), d = s.size;
  std::fill_n(w.scores, keys * kQueries, 0.0f);  // queries that fill up a block stay finite
  copy_rows(in.v.row(batch, kv_head, 0), in.v.token_stride, s.keys, d, w.rows, keys);
  transpose(w.rows, keys, d, w.v_transposed, keys);
  copy_rows(in.k.row(batch, kv_head, 0), in.k.token_stride, s.keys, d, w.k, keys);
  for (int64_t head = kv_head * groups; head < (kv_head + 1) * groups; ++head)
    for (int64_t first = 0; first < s.queries; first += kQueries) {
      const int64_t count = std::min(kQueries, s.queries - first), lanes = round_up(count);
      const int64_t visible = visible_keys(s, first, count);
      const auto* first_keys = first_keys_of(in.first_keys, batch, first);
      const int64_t begin = first_block(first_keys);
      copy_rows(in.q.row(batch, head, first), in.q.token_stride, count, d, w.rows, kQueries);
      transposed_operand(w.rows, kQueries, d, w.q);
      std::fill_n(w.largest, kQueries, kLowest);
      std::fill_n(w.total, kQueries, 0.0f);
      for (int64_t key = begin; key < visible; key += kKeys) {
        const int64_t rows = std::min(kKeys, keys - key);
        const Block block{key, std::min(rows, s.keys - key), first, s.causal, s.scale, first_keys, count};
        float* scores = w.scores + key * kQueries;
        product(rows, lanes, d, w.k + key * d, d, w.q, kQueries, scores, kQueries, false);
        add_bias(in.bias, batch, block, count, scores);
        mask_scores(scores, rows, block, w.largest);
      }
      for (int64_t key = begin; key < visible; key += kKeys) {
        const int64_t rows = std::min(kKeys, keys - key);
        weigh(w.scores + key * kQueries, rows, w.largest, w.total, w.weights);
        product(d, lanes, rows, w.v_transposed + key, keys, w.weights, kQueries, w.sums, kQueries, key > begin);
      }
      float* sums_of_head = log_sum + (batch * s.heads + head) * s.queries + first;
      for (int64_t i = 0; i < count; ++i) {
        sums_of_head[i] = w.largest[i] + std::log(w.total[i]);
        w.total[i] = 1 / w.total[i];
      }
      store_queries(w.sums, w.total, count, d, y.row(batch, head, first), y.token_stride);
    }
}

template <typename T, typename C>
void backward(const FlashShape& s, const FlashInputs<T>& in, int64_t pair, HeadRows<const T> y, HeadRows<const T> dy,
              const float* log_sum, const FlashGradients<T>& out, std::byte* memory) {
  const BackwardScratch<C> w(s, memory);
  const int64_t batch = pair / s.kv_heads, kv_head = pair % s.kv_heads, groups = s.heads / s.kv_heads;
  const int64_t keys = round_up(s.keys), d = s.size;
  copy_rows(in.k.row(batch, kv_head, 0), in.k.token_stride, s.keys, d, w.k, keys);
  copy_rows(in.v.row(batch, kv_head, 0), in.v.token_stride, s.keys, d, w.v, keys);
  transpose(w.k, keys, d, w.k_transposed, keys);
  for (float* x : {w.scores, w.dp}) std::fill_n(x, kKeys * kQueries, 0.0f);  // queries that fill up a block stay finite
  std::fill_n(w.dk, keys * d, 0.0f);
  std::fill_n(w.dv, keys * d, 0.0f);
  std::fill_n(w.ones, kQueries, 1.0f);
  for (int64_t head = kv_head * groups; head < (kv_head + 1) * groups; ++head)
    for (int64_t first = 0; first < s.queries; first += kQueries) {
      const int64_t count = std::min(kQueries, s.queries - first), lanes = round_up(count);
      copy_rows(in.q.row(batch, head, first), in.q.token_stride, count, d, w.q_rows, kQueries);
      copy_rows(dy.row(batch, head, first), dy.token_stride, count, d, w.dy_rows, kQueries);
      transposed_operand(w.q_rows, kQueries, d, w.q_transposed);
      transposed_operand(w.dy_rows, kQueries, d, w.dy_transposed);
      operand(w.q_rows, lanes, d, w.q);
      operand(w.dy_rows, lanes, d, w.dy);
      std::fill_n(w.log_sum, kQueries, INFINITY);
      std::fill_n(w.dot, kQueries, 0.0f);
      std::copy_n(log_sum + (batch * s.heads + head) * s.queries + first, count, w.log_sum);
      for (int64_t i = 0; i < count; ++i)
        w.dot[i] = dot_product(y.row(batch, head, first + i), dy.row(batch, head, first + i), d);
      const int64_t visible = visible_keys(s, first, count);
      const auto* first_keys = first_keys_of(in.first_keys, batch, first);
      const int64_t begin = first_block(first_keys);
      for (int64_t key = begin; key < visible; key += kKeys) {
        const int64_t rows = std::min(kKeys, keys - key);
        const Block block{key, std::min(rows, s.keys - key), first, s.causal, s.scale, first_keys, count};
        product(rows, lanes, d, w.k + key * d, d, w.q_transposed, kQueries, w.scores, kQueries, false);
        product(rows, lanes, d, w.v + key * d, d, w.dy_transposed, kQueries, w.dp, kQueries, false);
        add_bias(in.bias, batch, block, count, w.scores);
        differentiate(w.scores, w.dp, rows, block, w.log_sum, w.dot, s.scale, w.p, w.ds, w.ds_operand);
        product(rows, d, lanes, w.p, kQueries, w.dy, d, w.dv + key * d, d, true);
        product(rows, d, lanes, w.ds, kQueries, w.q, d, w.dk + key * d, d, true);
        product(d, lanes, rows, w.k_transposed + key, keys, w.ds_operand, kQueries, w.dq, kQueries, key > begin);
      }
      store_queries(w.dq, w.ones, count, d, out.dq.row(batch, head, first), out.dq.token_stride);
    }
  store_rows(w.dk, s.keys, d, out.dk.row(batch, kv_head, 0), out.dk.token_stride);
  store_rows(w.dv, s.keys, d, out.dv.row(batch, kv_head, 0), out.dv.token_stride);
}

/// Calls f with a value of the type that products are computed in.
template <typename T, typename F>
auto with_compute_type(const FlashShape& shape, F f) {
  if constexpr (std::is_same_v<T, BFloat16>)
    if (multiplies_bf16() && shape.size % 2 == 0) return f(BFloat16());
  return f(float());
}

}  // namespace

template <typename T>
int64_t flash_forward_scratch(const FlashShape& shape) {
  return with_compute_type<T>(shape,
                              [&](auto type) { return ForwardScratch<decltype(type)>(shape, nullptr).arena.used(); });
}

template <typename T>
int64_t flash_backward_scratch(const FlashShape& shape) {
  return with_compute_type<T>(shape,
                              [&](auto type) { return BackwardScratch<decltype(type)>(shape, nullptr).arena.used(); });
}

template <typename T>
void flash_forward(const FlashShape& shape, const FlashInputs<T>& in, int64_t pair, HeadRows<T> y, float* log_sum,
                   std::byte* scratch) {
  with_compute_type<T>(shape, [&](auto type) { forward<T, decltype(type)>(shape, in, pair, y, log_sum, scratch); });
}

template <typename T>
void flash_backward(const FlashShape& shape, const FlashInputs<T>& in, int64_t pair, HeadRows<const T> y,
                    HeadRows<const T> dy, const float* log_sum, const FlashGradients<T>& out, std::byte* scratch) {
  with_compute_type<T>(shape,
                       [&](auto type) { backward<T, decltype(type)>(shape, in, pair, y, dy, log_sum, out, scratch); });
}

#define VLMTUNE_INSTANTIATE(T)                                                                                        \
  template int64_t flash_forward_scratch<T>(const FlashShape&);                                                       \
  template int64_t flash_backward_scratch<T>(const FlashShape&);                                                      \
  template void flash_forward<T>(const FlashShape&, const FlashInputs<T>&, int64_t, HeadRows<T>, float*, std::byte*); \
  template void flash_backward<T>(const FlashShape&, const FlashInputs<T>&, int64_t, HeadRows<const T>,               \
                                  HeadRows<const T>, const float*, const FlashGradients<T>&, std::byte*);
VLMTUNE_INSTANTIATE(float)
VLMTUNE_INSTANTIATE(BFloat16)
VLMTUNE_INSTANTIATE(Half)

}  // namespace vlmtune::kernels::cpu
