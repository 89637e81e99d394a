#include "kernels/cpu/loops.h"

#include "kernels/cpu/arithmetic.h"
#include "kernels/cpu/bf16_vectors.h"

namespace vlmtune::kernels::cpu {
namespace {

template <typename T>
VLMTUNE_INLINE void rms_norm_forward_loop(const T* x, const T* weight, T* y, float* rstd, int64_t rows, int64_t size,
                                          float eps) {
  for (int64_t row = 0; row < rows; ++row, x += size, y += size) {
    const float mean = sum_over(size, [&](int64_t i) { return load(x[i]) * load(x[i]); }) / static_cast<float>(size);
    const float scale = rstd[row] = 1.0f / std::sqrt(mean + eps);
    for (int64_t i = 0; i < size; ++i) store(y + i, load(weight[i]) * rounded<T>(load(x[i]) * scale));
  }
}

template <typename T>
VLMTUNE_INLINE void rms_norm_backward_loop(const T* dy, const T* x, const T* weight, const float* rstd, T* dx,
                                           int64_t rows, int64_t size) {
  for (int64_t row = 0; row < rows; ++row, x += size, dy += size, dx += size) {
    const float scale = rstd[row];
    const float mean = sum_over(size, [&](int64_t i) { return load(dy[i]) * load(weight[i]) * load(x[i]); }) * scale *
                       scale / static_cast<float>(size);
    for (int64_t i = 0; i < size; ++i)
      store(dx + i, rms_norm_gradient(load(dy[i]), load(weight[i]), load(x[i]), mean, scale));
  }
}

template <typename T>
VLMTUNE_INLINE void rope_half_loop(const T* __restrict x, const T* __restrict other, const T* __restrict cos,
                                   const T* __restrict sin, T* __restrict y, int64_t half, float sign) {
  for (int64_t i = 0; i < half; ++i)
    store(y + i, rounded<T>(load(x[i]) * load(cos[i])) + sign * rounded<T>(load(other[i]) * load(sin[i])));
}

template <typename T>
VLMTUNE_INLINE void rope_row_loop(const T* x, const T* cos, const T* sin, T* y, int64_t size, float sign) {
  const int64_t half = size / 2;
  rope_half_loop(x, x + half, cos, sin, y, half, -sign);
  rope_half_loop(x + half, x, cos + half, sin + half, y + half, half, sign);
}

#ifdef VLMTUNE_BF16_VECTORS
/// For a `size` that is a multiple of kBf16Lanes.
VLMTUNE_BF16_VECTORS void rms_norm_backward_bf16(const c10::BFloat16* dy, const c10::BFloat16* x,
                                                 const c10::BFloat16* weight, const float* rstd, c10::BFloat16* dx,
                                                 int64_t rows, int64_t size) {
  for (int64_t row = 0; row < rows; ++row, x += size, dy += size, dx += size) {
    __m512 lanes = _mm512_setzero_ps();
    for (int64_t i = 0; i < size; i += kBf16Lanes)
      lanes = _mm512_fmadd_ps(_mm512_mul_ps(load16(dy + i), load16(weight + i)), load16(x + i), lanes);
    alignas(64) float sums[kLanes];
    _mm512_store_ps(sums, lanes);
    const float scale = rstd[row];
    const __m512 scales = _mm512_set1_ps(scale),
                 mean = _mm512_set1_ps(sum_lanes(sums) * scale * scale / static_cast<float>(size));
    for (int64_t i = 0; i < size; i += kBf16Lanes) {
      const __m512 projection = _mm512_mul_ps(load16(x + i), mean);
      store16(dx + i, _mm512_mul_ps(_mm512_fmsub_ps(load16(dy + i), load16(weight + i), projection), scales));
    }
  }
}

VLMTUNE_BF16_VECTORS void rope_row_bf16(const c10::BFloat16* x, const c10::BFloat16* cos, const c10::BFloat16* sin,
                                        c10::BFloat16* y, int64_t size, float sign) {
  const int64_t half = size / 2;
  const __m512 of_second = _mm512_set1_ps(sign);
  for (int64_t i = 0; i < half; i += kBf16Lanes) {
    const __m512 first = load16(x + i), second = load16(x + half + i);
    const __m512 a = rounded16(_mm512_mul_ps(second, load16(sin + i))),
                 b = rounded16(_mm512_mul_ps(first, load16(sin + half + i)));
    store16(y + i, _mm512_fnmadd_ps(of_second, a, rounded16(_mm512_mul_ps(first, load16(cos + i)))));
    store16(y + half + i, _mm512_fmadd_ps(of_second, b, rounded16(_mm512_mul_ps(second, load16(cos + half + i)))));
  }
}

/// For a multiple of kBf16Lanes.
VLMTUNE_BF16_VECTORS void swiglu_forward_bf16(const c10::BFloat16* gate, const c10::BFloat16* up, c10::BFloat16* y,
                                              int64_t count) {
  for (int64_t i = 0; i < count; i += kBf16Lanes) {
    const __m512 g = load16(gate + i);
    store16(y + i, _mm512_mul_ps(rounded16(_mm512_mul_ps(g, sigmoid16(g))), load16(up + i)));
  }
}
#endif

template <typename T>
VLMTUNE_INLINE void swiglu_forward_loop(const T* __restrict gate, const T* __restrict up, T* __restrict y,
                                        int64_t count) {
  for (int64_t i = 0; i < count; ++i) store(y + i, rounded<T>(load(gate[i]) * sigmoid(load(gate[i]))) * load(up[i]));
}

template <typename T>
VLMTUNE_INLINE void swiglu_backward_loop(const T* __restrict dy, const T* __restrict gate, const T* __restrict up,
                                         T* __restrict dgate, T* __restrict dup, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = load(gate[i]), s = sigmoid(g), d = load(dy[i]);
    store(dup + i, swiglu_up_gradient(d, g, s));
    store(dgate + i, swiglu_gate_gradient(d, g, load(up[i]), s));
  }
}

template <typename T>
VLMTUNE_INLINE float cross_entropy_row_loop(T* x, int64_t size, int64_t target, bool needs_gradient) {
  constexpr int64_t kPart = 4096;  // numbers that are summed up in fp32
  float lanes[kLanes];
  for (float& lane : lanes) lane = load(x[0]);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = load(x[i + l]) > lanes[l] ? load(x[i + l]) : lanes[l];
  float largest = load(x[0]);
  for (; i < size; ++i) largest = load(x[i]) > largest ? load(x[i]) : largest;
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  double sum = 0;
  for (int64_t part = 0; part < size; part += kPart)
    sum += sum_over(size - part < kPart ? size - part : kPart,
                    [&](int64_t j) { return exponential(load(x[part + j]) - largest); });
  const auto loss = static_cast<float>(std::log(sum) + static_cast<double>(largest - load(x[target])));
  if (!needs_gradient) return loss;
  const auto inverse = static_cast<float>(1 / sum);
  const float of_target = exponential(load(x[target]) - largest) * inverse - 1;
  for (int64_t j = 0; j < size; ++j) store(x + j, exponential(load(x[j]) - largest) * inverse);
  store(x + target, of_target);
  return loss;
}

template <typename T>
VLMTUNE_INLINE void attention_one_query_loop(const T* q, Rows<T> k, Rows<T> v, Rows<T> bias, T* y, int64_t tokens,
                                             int64_t size, float scale, float* scratch) {
  float *scores = scratch, *sums = scratch + tokens;
  float largest = -INFINITY;
  for (int64_t t = 0; t < tokens; ++t) {
    const T* row = k.data + t * k.stride;
    scores[t] = scale * sum_over(size, [&](int64_t i) { return load(q[i]) * load(row[i]); });
    if (bias.data != nullptr) scores[t] += load(bias.data[t * bias.stride]);
    largest = scores[t] > largest ? scores[t] : largest;
  }
  float total = 0;
  for (int64_t i = 0; i < size; ++i) sums[i] = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const float weight = scores[t] == -INFINITY ? 0 : exponential(scores[t] - largest);
    const T* row = v.data + t * v.stride;
    total += weight;
    for (int64_t i = 0; i < size; ++i) sums[i] += weight * load(row[i]);
  }
  for (int64_t i = 0; i < size; ++i) store(y + i, sums[i] / total);
}

template <typename T>
VLMTUNE_INLINE void linear_few_rows_loop(const float* x, const T* weight, const T* bias, T* y, int64_t m, int64_t k,
                                         int64_t n, int64_t begin, int64_t end) {
  constexpr int64_t kWide = 4 * kLanes;  // four sums side by side hide the latency of adding
  for (int64_t column = begin; column < end; ++column) {
    const T* w = weight + column * k;
    for (int64_t row = 0; row < m; ++row) {
      const float* v = x + row * k;
      float lanes[kWide] = {};
      int64_t i = 0;
      for (; i + kWide <= k; i += kWide)
        for (int l = 0; l < kWide; ++l) lanes[l] += v[i + l] * load(w[i + l]);
      float sum = bias != nullptr ? load(bias[column]) : 0;
      for (; i < k; ++i) sum += v[i] * load(w[i]);
      for (int part = 0; part < 4; ++part) sum += sum_lanes(lanes + part * kLanes);
      store(y + row * n + column, sum);
    }
  }
}

}  // namespace

#define VLMTUNE_INSTANTIATE(T)                                                                                        \
  template <>                                                                                                         \
  VLMTUNE_CLONES void rms_norm_forward<T>(const T* x, const T* weight, T* y, float* rstd, int64_t rows, int64_t size, \
                                          float eps) {                                                                \
    rms_norm_forward_loop(x, weight, y, rstd, rows, size, eps);                                                       \
  }                                                                                                                   \
  VLMTUNE_CLONES static void rms_norm_backward_plain(const T* dy, const T* x, const T* weight, const float* rstd,     \
                                                     T* dx, int64_t rows, int64_t size) {                             \
    rms_norm_backward_loop(dy, x, weight, rstd, dx, rows, size);                                                      \
  }                                                                                                                   \
  VLMTUNE_CLONES static void rope_row_plain(const T* x, const T* cos, const T* sin, T* y, int64_t size, float sign) { \
    rope_row_loop(x, cos, sin, y, size, sign);                                                                        \
  }                                                                                                                   \
  VLMTUNE_CLONES static void swiglu_forward_plain(const T* gate, const T* up, T* y, int64_t count) {                  \
    swiglu_forward_loop(gate, up, y, count);                                                                          \
  }                                                                                                                   \
  template <>                                                                                                         \
  VLMTUNE_CLONES void swiglu_backward<T>(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count) {  \
    swiglu_backward_loop(dy, gate, up, dgate, dup, count);                                                            \
  }                                                                                                                   \
  template <>                                                                                                         \
  VLMTUNE_CLONES float cross_entropy_row<T>(T * x, int64_t size, int64_t target, bool needs_gradient) {               \
    return cross_entropy_row_loop(x, size, target, needs_gradient);                                                   \
  }                                                                                                                   \
  template <>                                                                                                         \
  VLMTUNE_CLONES void attention_one_query<T>(const T* q, Rows<T> k, Rows<T> v, Rows<T> bias, T* y, int64_t tokens,    \
                                             int64_t size, float scale, float* scratch) {                             \
    attention_one_query_loop(q, k, v, bias, y, tokens, size, scale, scratch);                                         \
  }                                                                                                                   \
  template <>                                                                                                         \
  VLMTUNE_CLONES void linear_few_rows<T>(const float* x, const T* weight, const T* bias, T* y, int64_t m, int64_t k,  \
                                         int64_t n, int64_t begin, int64_t end) {                                     \
    linear_few_rows_loop(x, weight, bias, y, m, k, n, begin, end);                                                    \
  }

VLMTUNE_INSTANTIATE(float)
VLMTUNE_INSTANTIATE(c10::BFloat16)
VLMTUNE_INSTANTIATE(c10::Half)

template <typename T>
void rms_norm_backward(const T* dy, const T* x, const T* weight, const float* rstd, T* dx, int64_t rows, int64_t size) {
#ifdef VLMTUNE_BF16_VECTORS
  if constexpr (std::is_same_v<T, c10::BFloat16>)
    if (has_bf16_vectors() && size % kBf16Lanes == 0)
      return rms_norm_backward_bf16(dy, x, weight, rstd, dx, rows, size);
#endif
  rms_norm_backward_plain(dy, x, weight, rstd, dx, rows, size);
}

template <typename T>
void rope_row(const T* x, const T* cos, const T* sin, T* y, int64_t size, float sign) {
#ifdef VLMTUNE_BF16_VECTORS
  if constexpr (std::is_same_v<T, c10::BFloat16>)
    if (has_bf16_vectors() && size % (2 * kBf16Lanes) == 0) return rope_row_bf16(x, cos, sin, y, size, sign);
#endif
  rope_row_plain(x, cos, sin, y, size, sign);
}

template <typename T>
void swiglu_forward(const T* gate, const T* up, T* y, int64_t count) {
  int64_t done = 0;
#ifdef VLMTUNE_BF16_VECTORS
  if constexpr (std::is_same_v<T, c10::BFloat16>)
    if (has_bf16_vectors()) swiglu_forward_bf16(gate, up, y, done = count / kBf16Lanes * kBf16Lanes);
#endif
  swiglu_forward_plain(gate + done, up + done, y + done, count - done);
}

#define VLMTUNE_INSTANTIATE_CHOICES(T)                                                                  \
  template void rms_norm_backward<T>(const T*, const T*, const T*, const float*, T*, int64_t, int64_t); \
  template void rope_row<T>(const T*, const T*, const T*, T*, int64_t, float);                          \
  template void swiglu_forward<T>(const T*, const T*, T*, int64_t);
VLMTUNE_INSTANTIATE_CHOICES(float)
VLMTUNE_INSTANTIATE_CHOICES(c10::BFloat16)
VLMTUNE_INSTANTIATE_CHOICES(c10::Half)

}  // namespace vlmtune::kernels::cpu
