#include "lib/profile/blank_rows.h"

#include <algorithm>
#include <limits>
#include <set>

#include "lib/base/log.h"
#include "lib/data/damage.h"
#include "lib/data/packing.h"
#include "lib/data/row_file.h"
#include "lib/memory/scope.h"
#include "lib/pipeline/options.h"
#include "lib/train/embedding_cache.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// Tokens of "<0.2 seconds>" and of a time's brackets, as Qwen3-VL has them.
constexpr int64_t kTextOfTime = 8;

/// Frames that the tower takes at a time, and the parts of a video that are as many.
int64_t frames_per_time(const InputParts& inputs) {
  return inputs.video_processor ? inputs.video_processor->frames_per_patch : 1;
}
int64_t num_times(const InputParts& inputs, int64_t frames) {
  return (frames + frames_per_time(inputs) - 1) / frames_per_time(inputs);
}

/// Pictures and times of videos.
int64_t num_parts(const InputParts& inputs, const RowContents& contents) {
  int64_t parts = contents.images;
  for (const int64_t frames : contents.videos) parts += num_times(inputs, frames);
  return parts;
}

/// A video of at most so many tokens, with fewer frames where all are too many; frames of any size have at most
/// `limit_of_time` at a time. No frames: there is no room for any.
PictureShape largest_video(const InputParts& inputs, int64_t frames, int64_t limit_of_time, int64_t limit) {
  const auto& processor = *inputs.video_processor;
  const auto size =
      processor.aspect_ratio == AspectRatio::kDynamic ? processor.largest_size(limit_of_time) : processor.tile_size();
  auto shape = processor.shape_of_video(size, static_cast<int>(frames));
  while (shape.tiles > 0 && inputs.config.vision->image_tokens(shape) > limit)
    shape.tiles -= processor.frames_per_patch;
  return shape;
}

/// The pictures that a row has slots for: a video, or each of its times.
std::vector<PictureShape> slots_of(const InputParts& inputs, const PictureShape& video) {
  if (video.tiles == 0 || !inputs.config.vision->picture_text().slot_per_time) return {video};
  auto time = video;
  time.tiles = static_cast<int>(frames_per_time(inputs));
  return std::vector(static_cast<size_t>(video.tiles / time.tiles), time);
}

/// The first training file that is not there.
std::optional<fs::path> missing_data(const Recipe& recipe) {
  for (const auto& source : recipe.data.train)
    for (const auto& path : expand_braces(source.path))
      if (!fs::exists(path)) return path;
  return std::nullopt;
}

RowContents contents_of(const Row& row) {
  RowContents contents{.images = static_cast<int64_t>(row.images.size())};
  for (const auto& frames : row.videos) contents.videos.push_back(static_cast<int64_t>(frames.size()));
  return contents;
}

}  // namespace

PictureShape largest_picture(const InputParts& inputs, std::optional<int64_t> limit) {
  const auto& processor = *inputs.image_processor;
  if (processor.aspect_ratio == AspectRatio::kDynamic)
    return processor.shape_of(processor.largest_size(limit.value_or(std::numeric_limits<int64_t>::max())));
  auto best = processor.shape_of(processor.tile_size());
  for (const auto& size : processor.grid_pinpoints) {
    const auto shape = processor.shape_of(size);
    if (inputs.config.vision->image_tokens(shape) > inputs.config.vision->image_tokens(best)) best = shape;
  }
  return best;
}

ProcessedImage blank_picture(const InputParts& inputs, const PictureShape& shape,
                             std::optional<torch::ScalarType> features_type) {
  ProcessedImage image;
  static_cast<PictureShape&>(image) = shape;
  if (features_type) {
    const UncountedScope mapped;
    image.features = std::make_shared<PictureFeatures>(
        PictureFeatures{torch::zeros(inputs.config.vision->tower_shape(shape), *features_type)});
    return image;
  }
  image.pixels.resize(static_cast<size_t>(shape.tiles) * 3 * static_cast<size_t>(shape.height) *
                      static_cast<size_t>(shape.width));
  return image;
}

Example longest_row(const InputParts& inputs, int64_t length, const RowContents& contents,
                    std::optional<torch::ScalarType> features_type) {
  Example row;
  row.ids.assign(static_cast<size_t>(length), 0);
  row.labels.assign(static_cast<size_t>(length), 0);
  const int64_t parts = num_parts(inputs, contents);
  if (parts == 0) return row;
  int64_t room = length - 1;
  const bool has_seconds = !contents.videos.empty() && inputs.config.vision->picture_text().slot_per_time;
  const int64_t text = has_seconds ? kTextOfTime : 0, of_part = room / parts - text;
  const auto put = [&](const PictureShape& shape, int64_t token_id) {
    const int64_t tokens = inputs.config.vision->image_tokens(shape), begin = length - 1 - room,
                  untrained = tokens + (shape.is_video() ? text : 0);
    if (untrained > room) return;
    row.images.push_back(blank_picture(inputs, shape, features_type));
    std::fill_n(row.ids.begin() + begin, tokens, token_id);
    std::fill_n(row.labels.begin() + begin, untrained, kIgnoreLabel);
    room -= untrained;
  };
  for (int64_t i = 0; i < contents.images; ++i) put(largest_picture(inputs, of_part), inputs.config.image_token_id);
  for (const int64_t frames : contents.videos)
    if (const auto video = largest_video(inputs, frames, of_part, room); video.tiles > 0)
      for (const auto& slot : slots_of(inputs, video)) put(slot, inputs.config.video_token_id);
  return row;
}

RowContents fullest_row(const Recipe& recipe, const InputParts& inputs) {
  if (!inputs.config.vision) return {};
  if (recipe.data.train.empty()) return {.images = 1};
  if (const auto missing = missing_data(recipe)) {
    static std::set<fs::path> said;  // a plan is many dry runs
    if (said.insert(*missing).second) log_info("{} is not there: one picture a row is assumed", missing->string());
    return {.images = 1};
  }
  constexpr int64_t kRowsLookedAt = 20000;
  const auto dataset = open_training_data(recipe);
  RowContents fullest;
  for (int64_t i = 0; i < std::min(dataset.size(), kRowsLookedAt); ++i)
    damage_found([&] {  // which runs pass over, too
      auto contents = contents_of(dataset.row(i));
      if (!inputs.video_processor) contents.videos.clear();  // refused in a run
      if (num_parts(inputs, contents) > num_parts(inputs, fullest)) fullest = std::move(contents);
    });
  return fullest;
}

RowContents fullest_packed_row(const Recipe& recipe, Command command, const InputParts& parts, int64_t row_tokens,
                               const RowContents& sample) {
  if (num_parts(parts, sample) == 0) return {};
  const bool has_data = !recipe.data.train.empty() && !missing_data(recipe);
  const fs::path dir = recipe.model.path;
  constexpr const char* kTokenizers[] = {"tokenizer.json", "tokenizer.model", "qwen.tiktoken"};
  const bool has_tokenizer = std::any_of(std::begin(kTokenizers), std::end(kTokenizers),
                                         [&](const char* name) { return fs::exists(dir / name); });
  if (!has_data || !has_tokenizer)
    return {.images = row_tokens / parts.config.vision->image_tokens(largest_picture(parts))};
  constexpr int64_t kSamplesLookedAt = 2000;
  Recipe here = recipe;
  here.hardware = Hardware();
  const auto inputs = assemble_inputs(here, command);
  const ExampleBuilder builder(inputs.example_options(here));
  const auto dataset = open_training_data(here);
  RowContents fullest, contents;
  const StepLimits one_row{.micro_batches = 1, .rows = 1, .row_tokens = row_tokens};
  StepFiller filler(one_row);
  for (int64_t i = 0; i < std::min(dataset.size(), kSamplesLookedAt); ++i)
    damage_found([&] {  // which runs pass over, too
      Skip skip = Skip::kNone;
      const auto row = dataset.row(i);
      const auto length = static_cast<int64_t>(builder.measure(row, &skip).ids.size());
      if (skip != Skip::kNone) return;
      if (!filler.place(length)) {
        filler = StepFiller(one_row);
        filler.place(length);
        contents = {};
      }
      const auto more = contents_of(row);
      contents.images += more.images;
      contents.videos.insert(contents.videos.end(), more.videos.begin(), more.videos.end());
      if (num_parts(parts, contents) > num_parts(parts, fullest)) fullest = contents;
    });
  return fullest;
}

}  // namespace vlmtune
