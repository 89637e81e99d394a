// Pillow 13's resampling, bit for bit: convolution with an antialiased filter in two passes with an 8-bit picture in
// between, 22-bit fixed-point coefficients (libImaging/Resample.c).
#pragma once
#include "lib/image/image.h"

namespace vlmtune {

/// Pillow's numbers, as found in `resample` of preprocessor_config.json.
enum class Resample { kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3, kBox = 4, kHamming = 5 };

/// The picture at `width` x `height` (both at least 1). The same size gives a copy.
Image resize_image(const Image& image, int width, int height, Resample filter);

/// resize_image with the bicubic filter (a = -0.5).
Image resize_bicubic(const Image& image, int width, int height);

}  // namespace vlmtune
