// From a picture to pixel_values: what transformers' CLIP, SigLIP, ConvNeXt, LLaVA, LLaVA-NeXT and Qwen2-VL image processors (PIL
// backend) do; from the frames of a video: OneVision's, Qwen2-VL's and Qwen3-VL's video processors.
#pragma once
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lib/image/image.h"
#include "lib/image/resize.h"

namespace vlmtune {

/// How a picture is brought to the tower's square input.
enum class AspectRatio {
  kSquare,   // as the processor's own size and crop say
  kPad,      // LLaVA: first padded to a square with the mean colour
  kAnyres,   // LLaVA-NeXT: the whole picture, then a grid of tiles
  kDynamic,  // Qwen2-VL: near its own size, within limits, in whole blocks of patches
};

/// What a vision tower made of a picture earlier; only the rooms that compute look inside.
struct PictureFeatures;

/// What a processor makes of a picture.
struct PictureShape {
  ImageSize original;  // of the decoded picture
  int tiles = 1;
  int height = 0, width = 0;     // of a tile
  double frames_per_second = 0;  // of a video, whose tiles are its frames; 0: a picture
  bool is_video() const { return frames_per_second > 0; }
};

/// One picture, ready for the vision tower, or already behind it.
struct ProcessedImage : PictureShape {
  std::vector<float> pixels;  // [tiles, 3, height, width], normalised; empty when there are features
  std::shared_ptr<const PictureFeatures> features;
  int64_t num_bytes() const { return static_cast<int64_t>(pixels.size() * sizeof(float)); }
};

/// The settings of preprocessor_config.json and the steps themselves. A plain value: fields may be changed after load.
struct ImageProcessor {
  std::string type = "CLIPImageProcessor";  // as the file spells it
  bool do_resize = true, do_center_crop = true, do_rescale = true, do_normalize = true;
  int shortest_edge = 224;  // used when size_height is 0
  int size_height = 0, size_width = 0;
  int crop_height = 224, crop_width = 224;
  Resample resample = Resample::kBicubic;
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> image_mean{0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> image_std{0.26862954, 0.26130258, 0.27577711};
  AspectRatio aspect_ratio = AspectRatio::kSquare;
  std::vector<ImageSize> grid_pinpoints;                      // kAnyres only; the file has [height, width]
  bool one_tile_in_company = false;                           // kAnyres only: see process
  int64_t min_pixels = 56 * 56, max_pixels = 28 * 28 * 1280;  // kDynamic only, of the resized picture
  int patch_size = 14, merge_size = 2;                        // kDynamic only; a block is merge_size^2 patches
  int frames_per_patch = 1;                                   // of videos: the last frame is repeated up to a multiple
  double frames_per_second = 2;                               // of videos
  int64_t min_video_pixels = 0, max_video_pixels = 0;  // kDynamic only, of all frames together; 0: no limit (Qwen3-VL)

  /// Reads preprocessor_config.json (or processor_config.json's "image_processor") of a model folder. Known types: CLIP,
  /// Siglip, Bit, ConvNext, Llava, LlavaNext, LlavaOnevision and Qwen2VL image processors, their *Fast and *FeatureExtractor spellings, and the last two
  /// families' and Qwen3VL's video processors. Missing keys take
  /// the type's defaults. Errors: input_error naming the file and key.
  static ImageProcessor load(const std::filesystem::path& model_dir);

  /// As load, from the JSON text itself; `name` is what errors call it.
  static ImageProcessor parse(const std::string& json, const std::string& name);

  /// Resizes, cuts and normalises once; LLaVA-OneVision pads a picture that is not `alone` in its row to a square, which is one tile.
  /// Thread-safe.
  /// Errors: input_error for a picture that cannot be brought to the wanted size.
  ProcessedImage process(const Image& image, bool alone = true) const;

  /// Frames of a video, at least one and all of one size, at the size of `shape`; the last is repeated up to its tiles.
  ProcessedImage process_video(const std::vector<Image>& frames, const PictureShape& shape) const;

  /// What `process_video` should make of all frames of a video. Errors: as shape_of.
  PictureShape shape_of_video(ImageSize frame, int num_frames) const;

  /// Width and height of a tile of pixel_values.
  ImageSize tile_size() const;

  /// kDynamic: the size of picture that makes most blocks, at most `limit` of them; near to a square.
  ImageSize largest_size(int64_t limit) const;

  /// What `process` will make of a picture. Errors: input_error for one that is too long and thin.
  PictureShape shape_of(ImageSize original, bool alone = true) const;

  /// Everything that pixels depend on beside the picture, as text.
  std::string settings() const;
};

/// LLaVA's expand2square: the picture centred on a square of `colour`, offset (difference / 2) rounded down.
Image pad_to_square(const Image& image, std::array<uint8_t, 3> colour);

}  // namespace vlmtune
