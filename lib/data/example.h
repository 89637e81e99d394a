// From a row to what the model takes: ids with image slots expanded, labels by position, pixels.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/data/dataset.h"
#include "lib/data/video_times.h"
#include "lib/image/processor.h"
#include "lib/text/chat_template.h"
#include "lib/text/tokenizer.h"

namespace vlmtune {

/// Label of a position that is not trained.
inline constexpr int64_t kIgnoreLabel = -100;

/// A sample. L = length in tokens as the language model sees them.
struct Example {
  int64_t row = -1;  // in the data set; -1 for a row from elsewhere
  std::string id;
  std::vector<int64_t> ids;     // [L]; an image of N tokens is N copies of image_token_id, a video of video_token_id
  std::vector<int64_t> labels;  // [L]; the id itself where trained, else kIgnoreLabel. The shift by one is the model's
  std::vector<ProcessedImage> images;     // and videos or their times, in the order of their places
  std::vector<int64_t> image_starts;      // [images] position of each image's first token
  std::vector<int64_t> image_lengths;     // [images] its number of tokens
  std::vector<int64_t> sample_starts{0};  // position of each sample's first token; more than one in a packed row
  int64_t image_tokens = 0;               // sum of image_lengths
  int64_t label_tokens = 0;               // trained positions, without position 0, which nothing predicts
  bool truncated = false;
  int64_t num_bytes() const;
};

/// What is done with a sample longer than max_length.
enum class OverLength {
  kDrop,     // the row is left out and counted
  kCutText,  // cut at the end; a picture that would be cut goes as a whole
  kError,    // input_error naming the row
};

struct ExampleOptions {
  const Tokenizer* tokenizer = nullptr;             // outlives the builder
  const ChatTemplate* chat_template = nullptr;      // outlives the builder
  const ImageProcessor* image_processor = nullptr;  // outlives the builder; null refuses rows with pictures
  const ImageProcessor* video_processor = nullptr;  // of frames, outlives the builder; null refuses videos
  /// Each time of a video is a video of its own, in these brackets behind its seconds. Null: a video has one slot.
  std::optional<TimeBrackets> time_brackets;
  std::function<int64_t(const PictureShape&)> image_tokens;  // thread-safe; the model's own count
  /// Features in place of pixels, by the content of a picture's file and its name; thread-safe. Null: pictures are decoded.
  std::function<std::shared_ptr<const PictureFeatures>(const std::string& encoded, const std::string& name)> features;
  BoxStyle box_style = BoxStyle::kLlava;                      // how the model's family writes boxes
  std::function<ImageSize(ImageSize original)> resized_size;  // what the tower gets, for BoxStyle::kQwen25Vl
  int64_t image_token_id = -1, video_token_id = -1;
  int64_t max_length = 2048;  // tokens including pictures
  OverLength over_length = OverLength::kDrop;
  PromptOptions prompt;    // BOS in front, EOS after answers
  int64_t vocab_size = 0;  // ids at or above it are an error naming the row; 0 = not checked
};

/// Why a row gives no sample.
enum class Skip { kNone, kTooLong, kNoLabels };

/// Builds samples. Const methods are thread-safe.
class ExampleBuilder {
 public:
  explicit ExampleBuilder(ExampleOptions options);

  /// A training sample, or the reason why there is none (then ids are empty; a long row is kTooLong under kDrop and
  /// kError alike). Pictures are measured by their headers first and decoded once the row is known to stay.
  /// Errors: input_error naming the row.
  Example build(const Row& row, Skip* skip) const;

  /// As above; input_error instead of a reason.
  Example build(const Row& row) const;

  /// The training sample as build gives it, but for its pictures, which are not decoded. Errors: as build.
  Example measure(const Row& row, Skip* skip) const;

  /// For inference: the conversation up to its last user turn with the generation prompt, no labels.
  /// A last assistant turn is left out. Errors: input_error, also when longer than max_length.
  Example build_prompt(const Row& row) const;

  /// Tokens of the training sample without decoding pictures. Errors: as build.
  int64_t length_estimate(const Row& row) const;

  /// How the model writes boxes in a picture of this size.
  BoxFrame box_frame(ImageSize original) const;

  const ExampleOptions& options() const { return options_; }

 private:
  struct DraftPicture;
  struct Draft;
  /// Reads the headers of a picture, or of the frames of a video, and with `keep_files` all of the files.
  DraftPicture measure_files(std::vector<std::string> sources, bool is_video, bool alone, bool keep_files) const;
  /// What has a slot each of its own: a picture, a video, or the times of one.
  std::vector<DraftPicture> measure_slots(std::vector<std::string> sources, bool is_video, bool alone,
                                          bool keep_files) const;
  /// As many places as pictures and videos, all of which the model takes. Errors: input_error.
  void check_slots(const Row& row, const std::vector<PromptSpan>& spans) const;
  Draft draft(const Row& row, const std::vector<Message>& messages, bool for_answer, bool keep_files) const;
  Draft training_draft(const Row& row, Skip* skip, bool keep_files) const;
  Example finish(const Row& row, Draft&& draft) const;

  ExampleOptions options_;
};

/// The sample as text for people: trained text between [[ and ]], pictures as [image: N tokens].
std::string describe_example(const Example& example, const Tokenizer& tokenizer);

}  // namespace vlmtune
