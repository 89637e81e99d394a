// Attention without a [queries, keys] tensor on the CPU (Dao et al. 2022, arXiv 2205.14135): 64 queries against 64 keys at a
// time. Scores are held transposed, [keys, queries], so that the softmax runs over vectors of queries and every product
// but one takes its operands as they lie.
#pragma once
#include <cstddef>
#include <cstdint>

namespace vlmtune::kernels::cpu {

struct FlashShape {
  int64_t batch, heads, kv_heads, queries, keys, size;
  bool causal;  ///< query t sees keys 0..t
  float scale;  ///< of the scores
};

/// Every head's rows of a [batch, heads, tokens, size] tensor whose channels are adjacent.
template <typename T>
struct HeadRows {
  T* data;
  int64_t batch_stride, head_stride, token_stride;
  T* row(int64_t batch, int64_t head, int64_t token) const {
    return data + batch * batch_stride + head * head_stride + token * token_stride;
  }
};

/// Added to the scores: [batch, queries, keys], the same for all heads; data null: nothing is added.
template <typename T>
struct FlashBias {
  const T* data;
  int64_t batch_stride, query_stride, key_stride;
};

/// The first key that each query sees, [batch, queries], never falling along the queries of a row; data null: key 0.
struct FirstKeys {
  const int32_t* data;
  int64_t batch_stride;
};

template <typename T>
struct FlashInputs {
  HeadRows<const T> q, k, v;
  FlashBias<T> bias;
  FirstKeys first_keys;
};

template <typename T>
struct FlashGradients {
  HeadRows<T> dq, dk, dv;
};

/// Bytes of work space for a thread.
template <typename T>
int64_t flash_forward_scratch(const FlashShape& shape);
template <typename T>
int64_t flash_backward_scratch(const FlashShape& shape);

/// y and log_sum [batch, heads, queries] (of the exponentials of a query's scores) for the queries of one key-value head,
/// `pair` = batch * kv_heads + kv_head. `scratch` is aligned to 64 bytes.
template <typename T>
void flash_forward(const FlashShape& shape, const FlashInputs<T>& in, int64_t pair, HeadRows<T> y, float* log_sum,
                   std::byte* scratch);

/// The gradients of one key-value head and its queries.
template <typename T>
void flash_backward(const FlashShape& shape, const FlashInputs<T>& in, int64_t pair, HeadRows<const T> y,
                    HeadRows<const T> dy, const float* log_sum, const FlashGradients<T>& out, std::byte* scratch);

}  // namespace vlmtune::kernels::cpu
