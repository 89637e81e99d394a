// Row-wise loops of the CPU kernels on raw pointers, each compiled for AVX-512, AVX2 and plain x86-64 and chosen when
// the program starts. T is float, c10::BFloat16 or c10::Half; arithmetic is fp32.
#pragma once
#include <cstdint>

namespace vlmtune::kernels::cpu {

/// y[r] = weight * cast(x[r] * rstd[r]); x, y [rows, D], weight [D], rstd [rows].
template <typename T>
void rms_norm_forward(const T* x, const T* weight, T* y, float* rstd, int64_t rows, int64_t size, float eps);

/// dx of rms_norm.
template <typename T>
void rms_norm_backward(const T* dy, const T* x, const T* weight, const float* rstd, T* dx, int64_t rows, int64_t size);

/// Rotates one head row: y = x * cos + sign * rotate_half(x) * sin, all of `size` channels.
template <typename T>
void rope_row(const T* x, const T* cos, const T* sin, T* y, int64_t size, float sign);

/// y = silu(gate) * up.
template <typename T>
void swiglu_forward(const T* gate, const T* up, T* y, int64_t count);

template <typename T>
void swiglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count);

/// -log softmax(x)[target] of a row x [size], which with `needs_gradient` becomes that number's gradient.
template <typename T>
float cross_entropy_row(T* x, int64_t size, int64_t target, bool needs_gradient);

/// Rows of a tensor: the first one's data and the elements from one to the next.
template <typename T>
struct Rows {
  const T* data;
  int64_t stride;
};

/// y [d] = softmax(scale * q kᵀ + bias) v for one query row q [d], `tokens` rows k and v [d] and a bias each (data null:
/// none). `scratch` holds tokens + d floats.
template <typename T>
void attention_one_query(const T* q, Rows<T> k, Rows<T> v, Rows<T> bias, T* y, int64_t tokens, int64_t size,
                         float scale, float* scratch);

/// Outputs [begin, end) of y [m, n] = x [m, k] weightᵀ [n, k] + bias [n] (may be null) for a few rows x, given in fp32: each
/// weight is read once, which is all that decoding a token at a time can wish for.
template <typename T>
void linear_few_rows(const float* x, const T* weight, const T* bias, T* y, int64_t m, int64_t k, int64_t n,
                     int64_t begin, int64_t end);

}  // namespace vlmtune::kernels::cpu
