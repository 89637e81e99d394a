// The loops of a depthwise convolution over pictures [N, H, W, C] with a kernel of side * side taps, on raw pointers; T is
// float, c10::BFloat16 or c10::Half, sums are fp32.
#pragma once
#include <cstdint>

namespace vlmtune::kernels::cpu {

struct DepthwiseShape {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  int64_t side = 0;  ///< of the kernel, odd
};

/// Rows [begin, end) of y, counted over all pictures; taps [side * side, C], bias [C] or null.
template <typename T>
void depthwise_rows(const T* x, const float* taps, const float* bias, T* y, const DepthwiseShape& shape, int64_t begin,
                    int64_t end);

/// Rows [begin, end) of dtaps [side * side, C].
template <typename T>
void depthwise_tap_gradients(const T* dy, const T* x, float* dtaps, const DepthwiseShape& shape, int64_t begin,
                             int64_t end);

}  // namespace vlmtune::kernels::cpu
