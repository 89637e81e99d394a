#include "lib/image/processor.h"

#include <algorithm>
#include <cmath>

#include "lib/base/errors.h"
#include "lib/image/anyres.h"
#include "lib/image/counters.h"

namespace vlmtune {
namespace {

/// transformers' get_resize_output_image_size with default_to_square=False.
ImageSize shortest_edge_size(ImageSize in, int edge) {
  const int shorter = std::min(in.width, in.height), longer = std::max(in.width, in.height);
  const double scaled = static_cast<double>(int64_t{edge} * longer) / shorter;
  if (scaled > static_cast<double>(kMaxImagePixels))
    throw input_error("a picture of {} x {} is too long and thin to be resized", in.width, in.height);
  const int other = static_cast<int>(scaled);
  return in.width <= in.height ? ImageSize{edge, other} : ImageSize{other, edge};
}

/// Longer and thinner pictures are refused, as transformers does.
constexpr int kLongest = 200;

/// transformers' smart_resize (models/qwen2_vl, and models/qwen3_vl for `frames` that share limits): sides in whole blocks, the
/// area within the limits.
ImageSize smart_resize(ImageSize in, double block, double least, double most, double frames = 1, double counted = 1) {
  const double width = in.width, height = in.height;
  if (std::max(width, height) / std::min(width, height) > kLongest)
    throw input_error("a picture of {} x {} is too long and thin, expected at most {} times as long as wide", in.width,
                      in.height, kLongest);
  double w = std::nearbyint(width / block) * block, h = std::nearbyint(height / block) * block;  // halves to even
  if (counted * w * h > most) {
    const double beta = std::sqrt(frames * height * width / most);
    h = std::max(block, std::floor(height / beta / block) * block);
    w = std::max(block, std::floor(width / beta / block) * block);
  } else if (counted * w * h < least) {
    const double beta = std::sqrt(least / (frames * height * width));
    h = std::ceil(height * beta / block) * block;
    w = std::ceil(width * beta / block) * block;
  }
  return {static_cast<int>(w), static_cast<int>(h)};
}

ImageSize picture_size(const ImageProcessor& p, ImageSize in) {
  return smart_resize(in, p.patch_size * p.merge_size, static_cast<double>(p.min_pixels),
                      static_cast<double>(p.max_pixels));
}

/// Of each of `num_frames` frames. Where they share limits, frames without a partner are counted in rounded, halves to even,
/// and one that is smaller than a block is scaled to its size first.
ImageSize frame_size(const ImageProcessor& p, ImageSize in, int num_frames) {
  if (p.max_video_pixels == 0) return picture_size(p, in);
  const double block = p.patch_size * p.merge_size, of_patch = p.frames_per_patch;
  if (const double scale = std::max(block / in.height, block / in.width); scale > 1)
    in = {.width = static_cast<int>(in.width * scale), .height = static_cast<int>(in.height * scale)};
  const double frames = std::max<double>(num_frames, of_patch);
  const double most = std::min(static_cast<double>(p.max_video_pixels), static_cast<double>(p.max_pixels) * frames);
  return smart_resize(in, block, std::min(static_cast<double>(p.min_video_pixels), most), most, frames,
                      std::nearbyint(frames / of_patch) * of_patch);
}

Image resize_to_size(const ImageProcessor& p, const Image& image) {
  const ImageSize size =
      p.size_height > 0 ? ImageSize{p.size_width, p.size_height} : shortest_edge_size(image.size(), p.shortest_edge);
  return resize_image(image, size.width, size.height, p.resample);
}

/// The window of `width` x `height` at (left, top) of the picture; black where it reaches outside.
Image cut_window(const Image& in, int left, int top, int width, int height) {
  Image out{width, height, std::vector<uint8_t>(3 * static_cast<size_t>(width) * static_cast<size_t>(height), 0)};
  const int first_x = std::max(left, 0), last_x = std::min(left + width, in.width);
  const int first_y = std::max(top, 0), last_y = std::min(top + height, in.height);
  for (int y = first_y; y < last_y && first_x < last_x; ++y) {
    const auto from = 3 * (static_cast<size_t>(y) * static_cast<size_t>(in.width) + static_cast<size_t>(first_x));
    const auto to =
        3 * (static_cast<size_t>(y - top) * static_cast<size_t>(width) + static_cast<size_t>(first_x - left));
    std::copy_n(in.rgb.begin() + static_cast<std::ptrdiff_t>(from), 3 * (last_x - first_x),
                out.rgb.begin() + static_cast<std::ptrdiff_t>(to));
  }
  return out;
}

/// transformers' center_crop: odd differences lose the later pixel; smaller pictures are padded with black.
Image center_crop(const Image& in, int width, int height) {
  if (in.width == width && in.height == height) return in;
  const auto offset = [](int have, int want) { return have >= want ? (have - want) / 2 : -((want - have + 1) / 2); };
  return cut_window(in, offset(in.width, width), offset(in.height, height), width, height);
}

/// Values of pixel_values by channel and byte, computed as numpy does: scaled in double, the rest in float.
std::array<std::array<float, 256>, 3> value_table(const ImageProcessor& p) {
  std::array<std::array<float, 256>, 3> table;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t byte = 0; byte < 256; ++byte) {
      auto value =
          static_cast<float>(p.do_rescale ? static_cast<double>(byte) * p.rescale_factor : static_cast<double>(byte));
      if (p.do_normalize) value = (value - static_cast<float>(p.image_mean[c])) / static_cast<float>(p.image_std[c]);
      table[c][byte] = value;
    }
  }
  return table;
}

/// A tile as the tower sees it; kDynamic ones get `size`.
Image resize_and_crop(const ImageProcessor& p, const Image& in, ImageSize size) {
  const Image tile = p.aspect_ratio == AspectRatio::kDynamic ? resize_image(in, size.width, size.height, p.resample)
                     : p.do_resize                           ? resize_to_size(p, in)
                                                             : in;
  return p.do_center_crop ? center_crop(tile, p.crop_width, p.crop_height) : tile;
}

/// pixel_values of tiles of one size [tiles, 3, height, width].
std::vector<float> normalise(const ImageProcessor& p, const std::vector<Image>& tiles) {
  const auto table = value_table(p);
  const auto area = static_cast<size_t>(tiles[0].width) * static_cast<size_t>(tiles[0].height);
  std::vector<float> pixels(3 * area * tiles.size());
  float* target = pixels.data();
  for (const Image& tile : tiles) {
    VLMTUNE_CHECK(tile.size() == tiles[0].size(), "tiles of different sizes");
    for (size_t c = 0; c < 3; ++c)
      for (size_t i = 0; i < area; ++i) *target++ = table[c][tile.rgb[3 * i + c]];
  }
  return pixels;
}

/// The whole picture at the processor's square size, then the tiles of its grid, row by row.
std::vector<Image> anyres_tiles(const ImageProcessor& p, const Image& image) {
  const int width = p.size_height > 0 ? p.size_width : p.shortest_edge;
  const int height = p.size_height > 0 ? p.size_height : p.shortest_edge;
  const int tile = p.tile_size().height;
  const ImageSize resolution = select_best_resolution(image.size(), p.grid_pinpoints);
  const ImageSize inner = fit_into(image.size(), resolution);
  const Image scaled = resize_image(image, inner.width, inner.height, p.resample);
  const int left = (resolution.width - inner.width) / 2, top = (resolution.height - inner.height) / 2;
  std::vector<Image> tiles;
  tiles.push_back(resize_image(image, width, height, p.resample));
  for (int y = 0; y < resolution.height; y += tile)
    for (int x = 0; x < resolution.width; x += tile) tiles.push_back(cut_window(scaled, x - left, y - top, tile, tile));
  return tiles;
}

}  // namespace

Image pad_to_square(const Image& image, std::array<uint8_t, 3> colour) {
  const int side = std::max(image.width, image.height);
  if (int64_t{side} * side > kMaxImagePixels)
    throw input_error("a picture of {} x {} is too large to be padded to a square", image.width, image.height);
  if (image.width == image.height) return image;
  Image out{side, side, std::vector<uint8_t>(3 * static_cast<size_t>(side) * static_cast<size_t>(side))};
  for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = colour[i % 3];
  const auto left = static_cast<size_t>((side - image.width) / 2), top = static_cast<size_t>((side - image.height) / 2);
  const auto row_bytes = 3 * static_cast<size_t>(image.width);
  for (size_t y = 0; y < static_cast<size_t>(image.height); ++y)
    std::copy_n(image.rgb.begin() + static_cast<std::ptrdiff_t>(y * row_bytes), row_bytes,
                out.rgb.begin() + static_cast<std::ptrdiff_t>(3 * ((top + y) * static_cast<size_t>(side) + left)));
  return out;
}

ImageSize ImageProcessor::tile_size() const {
  if (do_center_crop) return {crop_width, crop_height};
  return size_height > 0 ? ImageSize{size_width, size_height} : ImageSize{shortest_edge, shortest_edge};
}

ImageSize ImageProcessor::largest_size(int64_t limit) const {
  const int64_t block = int64_t{patch_size} * merge_size,
                most = std::max<int64_t>(1, std::min(limit, max_pixels / (block * block)));
  ImageSize best;
  for (auto h = static_cast<int64_t>(std::sqrt(static_cast<double>(most))); h >= 1; --h)
    if (const int64_t w = most / h; w <= kLongest * h && h * w * block * block > int64_t{best.width} * best.height)
      best = {static_cast<int>(w * block), static_cast<int>(h * block)};
  return best;
}

PictureShape ImageProcessor::shape_of(ImageSize original, bool alone) const {
  if (aspect_ratio == AspectRatio::kDynamic) {
    const ImageSize size = do_resize ? picture_size(*this, original) : original;
    return {.original = original, .tiles = 1, .height = size.height, .width = size.width};
  }
  PictureShape shape{.original = original, .tiles = 1, .height = tile_size().height, .width = tile_size().width};
  if (aspect_ratio == AspectRatio::kAnyres && (alone || !one_tile_in_company)) {
    const ImageSize resolution = select_best_resolution(original, grid_pinpoints);
    shape.tiles += resolution.width / shape.width * (resolution.height / shape.height);
  }
  return shape;
}

PictureShape ImageProcessor::shape_of_video(ImageSize frame, int num_frames) const {
  auto shape = shape_of(frame);
  if (aspect_ratio == AspectRatio::kDynamic && do_resize) {
    const auto size = frame_size(*this, frame, num_frames);
    shape.height = size.height;
    shape.width = size.width;
  }
  shape.tiles = (num_frames + frames_per_patch - 1) / frames_per_patch * frames_per_patch;
  shape.frames_per_second = frames_per_second;
  return shape;
}

ProcessedImage ImageProcessor::process_video(const std::vector<Image>& frames, const PictureShape& shape) const {
  std::vector<Image> tiles;
  for (const auto& frame : frames) tiles.push_back(resize_and_crop(*this, frame, {shape.width, shape.height}));
  ProcessedImage video;
  static_cast<PictureShape&>(video) = shape;
  video.pixels = normalise(*this, tiles);
  const auto of_frame = static_cast<std::ptrdiff_t>(video.pixels.size() / frames.size());
  for (auto k = static_cast<int>(frames.size()); k < video.tiles; ++k) {
    const std::vector<float> last(video.pixels.end() - of_frame, video.pixels.end());
    video.pixels.insert(video.pixels.end(), last.begin(), last.end());
  }
  count_processed_image();
  return video;
}

std::string ImageProcessor::settings() const {
  auto text =
      fmt::format("resize {} to {} or {}x{} by {}, crop {} to {}x{}, scale {} by {}, normalise {} by {} {}, aspect {}",
                  do_resize, shortest_edge, size_width, size_height, static_cast<int>(resample), do_center_crop,
                  crop_width, crop_height, do_rescale, rescale_factor, do_normalize, fmt::join(image_mean, " "),
                  fmt::join(image_std, " "), static_cast<int>(aspect_ratio));
  for (const auto& grid : grid_pinpoints) text += fmt::format(" {}x{}", grid.width, grid.height);
  if (aspect_ratio == AspectRatio::kDynamic)
    text += fmt::format(" {} to {} pixels, blocks of {} x {}", min_pixels, max_pixels, merge_size, patch_size);
  return text;
}

ProcessedImage ImageProcessor::process(const Image& image, bool alone) const {
  std::vector<Image> tiles;
  const bool padded = aspect_ratio == AspectRatio::kPad || (one_tile_in_company && !alone);
  if (aspect_ratio == AspectRatio::kAnyres && !padded) {
    for (const ImageSize grid : grid_pinpoints)
      if (grid.width % tile_size().width != 0 || grid.height % tile_size().height != 0)
        throw input_error("image_grid_pinpoints has {} x {}, which is no multiple of the tile of {} pixels",
                          grid.height, grid.width, tile_size().height);
    tiles = anyres_tiles(*this, image);
  } else if (padded) {
    std::array<uint8_t, 3> colour;
    for (size_t c = 0; c < 3; ++c) colour[c] = static_cast<uint8_t>(image_mean[c] * 255);
    tiles.push_back(pad_to_square(image, colour));
  } else {
    tiles.push_back(image);
  }
  const auto shape = shape_of(image.size(), alone);
  for (Image& tile : tiles) tile = resize_and_crop(*this, tile, {shape.width, shape.height});
  ProcessedImage out;
  out.tiles = static_cast<int>(tiles.size());
  out.height = tiles[0].height;
  out.width = tiles[0].width;
  out.original = image.size();
  out.pixels = normalise(*this, tiles);
  count_processed_image();
  return out;
}

}  // namespace vlmtune
