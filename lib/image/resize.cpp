#include "lib/image/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

constexpr int kPrecisionBits = 32 - 8 - 2;  // 8-bit samples, 2 bits of head room for the filter's overshoot

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double filter_value(Resample filter, double x) {
  switch (filter) {
    case Resample::kBox:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Resample::kBilinear:
      x = std::abs(x);
      return x < 1 ? 1 - x : 0;
    case Resample::kHamming:
      x = std::abs(x);
      if (x == 0) return 1;
      if (x >= 1) return 0;
      x *= std::numbers::pi;
      return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
    case Resample::kLanczos:
      return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    case Resample::kBicubic: {
      constexpr double a = -0.5;
      x = std::abs(x);
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
      return 0;
    }
    case Resample::kNearest:
      break;
  }
  return 0;
}

double filter_support(Resample filter) {
  switch (filter) {
    case Resample::kBox:
      return 0.5;
    case Resample::kBilinear:
    case Resample::kHamming:
      return 1;
    case Resample::kBicubic:
      return 2;
    default:
      return 3;
  }
}

/// One output sample is the sum of `count` input samples from `first` on, times the weights at `offset`.
struct Taps {
  int first, count;
  size_t offset;
};

struct Kernel {
  std::vector<Taps> taps;        // [out]
  std::vector<int32_t> weights;  // 22-bit fixed point
};

Kernel make_kernel(Resample filter, int in_size, int out_size) {
  const double scale = static_cast<double>(in_size) / out_size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = filter_support(filter) * filter_scale;
  const double inverse = 1.0 / filter_scale;
  Kernel kernel;
  kernel.taps.reserve(static_cast<size_t>(out_size));
  std::vector<double> window;
  for (int out = 0; out < out_size; ++out) {
    const double center = (out + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int last = std::min(static_cast<int>(center + support + 0.5), in_size);
    window.clear();
    double sum = 0;
    for (int x = first; x < last; ++x) {
      window.push_back(filter_value(filter, (x - center + 0.5) * inverse));
      sum += window.back();
    }
    kernel.taps.push_back({first, last - first, kernel.weights.size()});
    for (double weight : window) {
      if (sum != 0) weight /= sum;
      kernel.weights.push_back(static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kPrecisionBits)));
    }
  }
  return kernel;
}

uint8_t clip8(int32_t value) { return static_cast<uint8_t>(std::clamp(value >> kPrecisionBits, 0, 255)); }

Image resize_columns(const Image& in, int width, Resample filter) {
  const Kernel kernel = make_kernel(filter, in.width, width);
  Image out{width, in.height, std::vector<uint8_t>(3 * static_cast<size_t>(width) * static_cast<size_t>(in.height))};
  uint8_t* target = out.rgb.data();
  for (int y = 0; y < in.height; ++y) {
    const uint8_t* row = in.rgb.data() + 3 * static_cast<size_t>(in.width) * static_cast<size_t>(y);
    for (const Taps& taps : kernel.taps) {
      const int32_t* weight = kernel.weights.data() + taps.offset;
      const uint8_t* pixel = row + 3 * static_cast<size_t>(taps.first);
      int32_t r = 1 << (kPrecisionBits - 1), g = r, b = r;
      for (int i = 0; i < taps.count; ++i, pixel += 3) {
        r += pixel[0] * weight[i];
        g += pixel[1] * weight[i];
        b += pixel[2] * weight[i];
      }
      *target++ = clip8(r);
      *target++ = clip8(g);
      *target++ = clip8(b);
    }
  }
  return out;
}

Image resize_rows(const Image& in, int height, Resample filter) {
  const Kernel kernel = make_kernel(filter, in.height, height);
  const size_t stride = 3 * static_cast<size_t>(in.width);
  Image out{in.width, height, std::vector<uint8_t>(stride * static_cast<size_t>(height))};
  std::vector<int32_t> sums(stride);
  for (int y = 0; y < height; ++y) {
    const Taps& taps = kernel.taps[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 1 << (kPrecisionBits - 1));
    for (int i = 0; i < taps.count; ++i) {
      const int32_t weight = kernel.weights[taps.offset + static_cast<size_t>(i)];
      const uint8_t* row = in.rgb.data() + stride * static_cast<size_t>(taps.first + i);
      for (size_t x = 0; x < stride; ++x) sums[x] += row[x] * weight;
    }
    uint8_t* target = out.rgb.data() + stride * static_cast<size_t>(y);
    for (size_t x = 0; x < stride; ++x) target[x] = clip8(sums[x]);
  }
  return out;
}

Image resize_nearest(const Image& in, int width, int height) {
  Image out{width, height, {}};
  out.rgb.reserve(3 * static_cast<size_t>(width) * static_cast<size_t>(height));
  const double scale_x = static_cast<double>(in.width) / width, scale_y = static_cast<double>(in.height) / height;
  for (int y = 0; y < height; ++y) {
    const size_t row = static_cast<size_t>((y + 0.5) * scale_y) * static_cast<size_t>(in.width);
    for (int x = 0; x < width; ++x) {
      const uint8_t* pixel = in.rgb.data() + 3 * (row + static_cast<size_t>((x + 0.5) * scale_x));
      out.rgb.insert(out.rgb.end(), pixel, pixel + 3);
    }
  }
  return out;
}

}  // namespace

Image resize_image(const Image& image, int width, int height, Resample filter) {
  if (width < 1 || height < 1 || int64_t{width} * height > kMaxImagePixels)
    throw input_error("a picture cannot be resized to {} x {}", width, height);
  VLMTUNE_CHECK(image.width > 0 && image.height > 0, "empty picture");
  if (image.width == width && image.height == height) return image;
  if (filter == Resample::kNearest) return resize_nearest(image, width, height);
  if (image.width == width) return resize_rows(image, height, filter);
  if (image.height == height) return resize_columns(image, width, filter);
  // Pillow 13: rows first when the height loses more than twice what the width does. (Older ones: columns first, always.)
  const int lost_height = image.height - height;
  if (lost_height > 0 && lost_height > 2 * int64_t{image.width - width})
    return resize_columns(resize_rows(image, height, filter), width, filter);
  return resize_rows(resize_columns(image, width, filter), height, filter);
}

Image resize_bicubic(const Image& image, int width, int height) {
  return resize_image(image, width, height, Resample::kBicubic);
}

}  // namespace vlmtune
