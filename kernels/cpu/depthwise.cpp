#include "kernels/cpu/depthwise.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/cpu/arithmetic.h"

namespace vlmtune::kernels::cpu {
namespace {

constexpr int64_t kChannels = 64;  // whose sums stay in registers

/// Calls f(first channel, number of channels) for blocks of channels, the number being a constant but for the last.
template <typename F>
VLMTUNE_INLINE void each_block(int64_t channels, F f) {
  int64_t begin = 0;
  for (; begin + kChannels <= channels; begin += kChannels) f(begin, std::integral_constant<int64_t, kChannels>());
  if (begin < channels) f(begin, channels - begin);
}

/// Of `count` places that begin at `start` of a line of `size`: the first that is inside, and the one behind the last.
VLMTUNE_INLINE std::pair<int64_t, int64_t> inside(int64_t start, int64_t count, int64_t size) {
  return {std::max<int64_t>(0, -start), std::min(count, size - start)};
}

template <typename T>
VLMTUNE_INLINE void rows_loop(const T* x, const float* taps, const float* bias, T* y, const DepthwiseShape& s,
                              int64_t first, int64_t last) {
  const int64_t border = s.side / 2;
  for (int64_t row = first; row < last; ++row) {
    const int64_t top = row % s.height - border;
    const T* picture = x + row / s.height * s.height * s.width * s.channels;
    const auto [i_begin, i_end] = inside(top, s.side, s.height);
    for (int64_t column = 0; column < s.width; ++column) {
      const int64_t left = column - border;
      const auto [j_begin, j_end] = inside(left, s.side, s.width);
      each_block(
          s.channels, [&](int64_t c, auto count) __attribute__((always_inline)) {
            float sums[kChannels] = {};
            if (bias != nullptr)
              for (int64_t k = 0; k < count; ++k) sums[k] = bias[c + k];
            for (int64_t i = i_begin; i < i_end; ++i)
              for (int64_t j = j_begin; j < j_end; ++j) {
                const T* seen = picture + ((top + i) * s.width + left + j) * s.channels + c;
                const float* tap = taps + (i * s.side + j) * s.channels + c;
                for (int64_t k = 0; k < count; ++k) sums[k] += load(seen[k]) * tap[k];
              }
            T* out = y + (row * s.width + column) * s.channels + c;
            for (int64_t k = 0; k < count; ++k) store(out + k, sums[k]);
          });
    }
  }
}

template <typename T>
VLMTUNE_INLINE void tap_gradients_loop(const T* dy, const T* x, float* dtaps, const DepthwiseShape& s, int64_t first,
                                       int64_t last) {
  for (int64_t tap = first; tap < last; ++tap) {
    const int64_t down = tap / s.side - s.side / 2, right = tap % s.side - s.side / 2;
    const auto [row_begin, row_end] = inside(down, s.height, s.height);
    const auto [column_begin, column_end] = inside(right, s.width, s.width);
    each_block(
        s.channels, [&](int64_t c, auto count) __attribute__((always_inline)) {
          float sums[kChannels] = {};
          for (int64_t image = 0; image < s.images; ++image)
            for (int64_t row = row_begin; row < row_end; ++row)
              for (int64_t column = column_begin; column < column_end; ++column) {
                const int64_t place = (image * s.height + row) * s.width + column;
                const T* gradient = dy + place * s.channels + c;
                const T* seen = x + (place + down * s.width + right) * s.channels + c;
                for (int64_t k = 0; k < count; ++k) sums[k] += load(gradient[k]) * load(seen[k]);
              }
          for (int64_t k = 0; k < count; ++k) dtaps[tap * s.channels + c + k] = sums[k];
        });
  }
}

}  // namespace

#define VLMTUNE_INSTANTIATE(T)                                                                                       \
  template <>                                                                                                        \
  VLMTUNE_CLONES void depthwise_rows<T>(const T* x, const float* taps, const float* bias, T* y,                      \
                                        const DepthwiseShape& shape, int64_t begin, int64_t end) {                   \
    rows_loop(x, taps, bias, y, shape, begin, end);                                                                  \
  }                                                                                                                  \
  template <>                                                                                                        \
  VLMTUNE_CLONES void depthwise_tap_gradients<T>(const T* dy, const T* x, float* dtaps, const DepthwiseShape& shape, \
                                                 int64_t begin, int64_t end) {                                       \
    tap_gradients_loop(dy, x, dtaps, shape, begin, end);                                                             \
  }
VLMTUNE_INSTANTIATE(float)
VLMTUNE_INSTANTIATE(c10::BFloat16)
VLMTUNE_INSTANTIATE(c10::Half)

}  // namespace vlmtune::kernels::cpu
