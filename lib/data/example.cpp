#include "lib/data/example.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/data/grounding.h"
#include "lib/image/source.h"

namespace vlmtune {
namespace {

/// The conversation as it stands, for language models without a template.
std::vector<PromptSpan> raw_spans(const std::vector<Message>& messages) {
  std::vector<PromptSpan> spans;
  for (size_t turn = 0; turn < messages.size(); ++turn) {
    const SpanKind text = messages[turn].role == "assistant" ? SpanKind::kAnswer : SpanKind::kText;
    for (const MessagePart& part : messages[turn].parts) {
      const auto kind = part.kind == MessagePart::Kind::kImage   ? SpanKind::kImage
                        : part.kind == MessagePart::Kind::kVideo ? SpanKind::kVideo
                                                                 : text;
      if (kind != text || !part.text.empty()) spans.push_back({kind, part.text, static_cast<int>(turn)});
    }
  }
  return spans;
}

void count_labels(Example& example) {
  example.label_tokens = 0;
  for (size_t t = 1; t < example.labels.size(); ++t) example.label_tokens += example.labels[t] != kIgnoreLabel;
}

/// Cuts to at most `limit` tokens; a picture that would lose tokens goes with all that follows.
void cut_to(Example& example, int64_t limit) {
  size_t keep = 0;
  while (keep < example.image_starts.size() && example.image_starts[keep] + example.image_lengths[keep] <= limit)
    ++keep;
  if (keep < example.image_starts.size()) limit = std::min(limit, example.image_starts[keep]);
  example.ids.resize(static_cast<size_t>(limit));
  example.labels.resize(static_cast<size_t>(limit));
  example.image_starts.resize(keep);
  example.image_lengths.resize(keep);
  example.image_tokens = 0;
  for (const int64_t length : example.image_lengths) example.image_tokens += length;
  example.truncated = true;
}

}  // namespace

int64_t Example::num_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof(Example) + 8 * (ids.size() + labels.size() + 2 * image_starts.size()));
  for (const ProcessedImage& image : images) bytes += image.num_bytes();
  return bytes;
}

/// A picture or a video that has a place.
struct ExampleBuilder::DraftPicture {
  std::vector<std::string> sources, encoded;  // of the picture or the frames; their files
  PictureShape shape;
};

/// A sample whose pictures are measured but not decoded yet.
struct ExampleBuilder::Draft {
  Example example;
  std::vector<DraftPicture> pictures;
};

ExampleBuilder::ExampleBuilder(ExampleOptions options) : options_(std::move(options)) {
  VLMTUNE_CHECK(options_.tokenizer != nullptr, "an example builder needs a tokenizer");
  VLMTUNE_CHECK(options_.image_processor == nullptr || options_.image_tokens, "pictures need a token count");
}

BoxFrame ExampleBuilder::box_frame(ImageSize original) const {
  return {options_.box_style, original, options_.resized_size ? options_.resized_size(original) : original};
}

ExampleBuilder::DraftPicture ExampleBuilder::measure_files(std::vector<std::string> sources, bool is_video, bool alone,
                                                           bool keep_files) const {
  DraftPicture picture{std::move(sources), {}, {}};
  ImageSize size;
  for (const auto& source : picture.sources) {
    if (keep_files) picture.encoded.push_back(read_image_source(source, {}));
    const auto own = keep_files
                         ? probe_image(std::as_bytes(std::span(picture.encoded.back())), image_source_name(source))
                         : probe_image_source(source, {});
    if (&source != &picture.sources.front() && own != size)
      throw input_error("{}: a frame of {} x {}, expected {} x {} as the video's first", image_source_name(source),
                        own.width, own.height, size.width, size.height);
    size = own;
  }
  picture.shape = is_video ? options_.video_processor->shape_of_video(size, static_cast<int>(picture.sources.size()))
                           : options_.image_processor->shape_of(size, alone);
  return picture;
}

std::vector<ExampleBuilder::DraftPicture> ExampleBuilder::measure_slots(std::vector<std::string> sources, bool is_video,
                                                                        bool alone, bool keep_files) const {
  auto whole = measure_files(std::move(sources), is_video, alone, keep_files);
  if (!is_video || !options_.time_brackets) return {std::move(whole)};
  const auto of_time = static_cast<size_t>(options_.video_processor->frames_per_patch);
  std::vector<DraftPicture> times;
  for (size_t k = 0; k < whole.sources.size(); ++k) {
    if (k % of_time == 0) {
      times.push_back({{}, {}, whole.shape});
      times.back().shape.tiles = options_.video_processor->frames_per_patch;
    }
    times.back().sources.push_back(std::move(whole.sources[k]));
    if (keep_files) times.back().encoded.push_back(std::move(whole.encoded[k]));
  }
  return times;
}

void ExampleBuilder::check_slots(const Row& row, const std::vector<PromptSpan>& spans) const {
  if (!row.images.empty() && options_.image_processor == nullptr)
    throw input_error("the model takes no pictures, the row has {}", row.images.size());
  if (!row.videos.empty() && options_.video_processor == nullptr)
    throw input_error("the model takes no videos, the row has {}", row.videos.size());
  if (!row.videos.empty() && options_.features)
    throw input_error("the row has a video, whose features no embedding cache holds");
  const auto count = [&](SpanKind kind) {
    return static_cast<size_t>(
        std::count_if(spans.begin(), spans.end(), [&](const PromptSpan& span) { return span.kind == kind; }));
  };
  const size_t images = count(SpanKind::kImage), videos = count(SpanKind::kVideo);
  if (images != row.images.size())
    throw input_error("the prompt has {} places for {} pictures", images, row.images.size());
  if (videos != row.videos.size())
    throw input_error("the prompt has {} places for {} videos", videos, row.videos.size());
}

ExampleBuilder::Draft ExampleBuilder::draft(const Row& row, const std::vector<Message>& messages, bool for_answer,
                                            bool keep_files) const {
  Draft draft;
  Example& example = draft.example;
  example.id = row.id;
  const bool has_template = options_.chat_template != nullptr && !options_.chat_template->empty();
  const auto frame_of = [&](size_t image) { return box_frame(probe_image_source(row.images.at(image), {})); };
  const auto texts = speaks_of_boxes(row, messages) ? place_boxes(row, messages, frame_of) : messages;
  auto spans = has_template ? options_.chat_template->render(texts, for_answer) : raw_spans(texts);
  check_slots(row, spans);
  if (options_.time_brackets && !row.videos.empty())
    spans = with_slot_per_time(spans, row.videos, *options_.video_processor, *options_.time_brackets);
  const Encoding encoding = options_.tokenizer->encode_prompt(spans, options_.prompt);
  size_t images = 0, videos = 0;
  for (size_t t = 0; t < encoding.ids.size(); ++t) {
    const int64_t id = encoding.ids[t];
    if (id != kImageSlot && id != kVideoSlot) {
      if (id < 0 || (options_.vocab_size > 0 && id >= options_.vocab_size))
        throw input_error("token {} is outside the model's vocabulary of {}", id, options_.vocab_size);
      if (id == options_.image_token_id || id == options_.video_token_id)
        throw input_error("the text holds the {} token {}", id == options_.image_token_id ? "image" : "video", id);
      example.ids.push_back(id);
      example.labels.push_back(encoding.trained[t] != 0 ? id : kIgnoreLabel);
      continue;
    }
    const bool is_video = id == kVideoSlot;
    const size_t slot = example.image_starts.size();
    if (slot == draft.pictures.size())  // else the slot is of another time of the video before it
      for (auto& picture : measure_slots(is_video ? row.videos[videos++] : std::vector{row.images[images++]}, is_video,
                                         row.images.size() == 1, keep_files))
        draft.pictures.push_back(std::move(picture));
    const int64_t length = options_.image_tokens(draft.pictures[slot].shape);
    example.image_starts.push_back(static_cast<int64_t>(example.ids.size()));
    example.image_lengths.push_back(length);
    example.image_tokens += length;
    example.ids.insert(example.ids.end(), static_cast<size_t>(length),
                       is_video ? options_.video_token_id : options_.image_token_id);
    example.labels.insert(example.labels.end(), static_cast<size_t>(length), kIgnoreLabel);
  }
  return draft;
}

Example ExampleBuilder::finish(const Row& row, Draft&& draft) const {
  Example example = std::move(draft.example);
  const bool alone = row.images.size() == 1;
  for (size_t i = 0; i < example.image_starts.size(); ++i) {
    auto& [sources, encoded, shape] = draft.pictures[i];
    if (options_.features) {
      ProcessedImage image;
      image.features = options_.features(encoded[0], image_source_name(sources[0]));
      static_cast<PictureShape&>(image) = shape;
      example.images.push_back(std::move(image));
    } else {
      std::vector<Image> decoded;
      for (size_t k = 0; k < encoded.size(); ++k)
        decoded.push_back(decode_image(std::as_bytes(std::span(encoded[k])), image_source_name(sources[k])));
      example.images.push_back(shape.is_video() ? options_.video_processor->process_video(decoded, shape)
                                                : options_.image_processor->process(decoded[0], alone));
    }
    std::vector<std::string>().swap(encoded);
  }
  count_labels(example);
  return example;
}

namespace {

/// Runs `work`; its input errors get the row's place in front, unless they have it already.
template <typename Work>
auto naming(const Row& row, Work&& work) {
  try {
    return work();
  } catch (const UserError& error) {
    if (error.code() != ExitCode::kInput || std::string_view(error.what()).starts_with(row.place)) throw;
    throw input_error("{}: {}", row.place, error.what());
  }
}

}  // namespace

ExampleBuilder::Draft ExampleBuilder::training_draft(const Row& row, Skip* skip, bool keep_files) const {
  *skip = Skip::kNone;
  Draft draft = this->draft(row, row.messages, false, keep_files);
  Example& example = draft.example;
  if (static_cast<int64_t>(example.ids.size()) > options_.max_length) {
    if (options_.over_length == OverLength::kCutText)
      cut_to(example, options_.max_length);
    else
      *skip = Skip::kTooLong;
  }
  count_labels(example);
  if (*skip == Skip::kNone && example.label_tokens == 0) *skip = Skip::kNoLabels;
  if (*skip != Skip::kNone) {
    example = Example();
    example.id = row.id;
  }
  return draft;
}

Example ExampleBuilder::build(const Row& row, Skip* skip) const {
  return naming(row, [&] { return finish(row, training_draft(row, skip, true)); });
}

Example ExampleBuilder::measure(const Row& row, Skip* skip) const {
  return naming(row, [&] { return training_draft(row, skip, false).example; });
}

Example ExampleBuilder::build(const Row& row) const {
  Skip skip;
  Example example = build(row, &skip);
  if (skip == Skip::kTooLong)
    throw input_error("{}: the row is {} tokens long, more than the limit of {}", row.place, length_estimate(row),
                      options_.max_length);
  if (skip == Skip::kNoLabels) throw input_error("{}: the row has no token to train on", row.place);
  return example;
}

Example ExampleBuilder::build_prompt(const Row& row) const {
  return naming(row, [&] {
    std::vector<Message> messages = row.messages;
    while (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
    Draft draft = this->draft(row, messages, true, true);
    const auto length = static_cast<int64_t>(draft.example.ids.size());
    if (length > options_.max_length)
      throw input_error("the prompt is {} tokens long, more than the limit of {}", length, options_.max_length);
    draft.example.labels.assign(draft.example.labels.size(), kIgnoreLabel);
    return finish(row, std::move(draft));
  });
}

int64_t ExampleBuilder::length_estimate(const Row& row) const {
  return naming(row, [&] { return static_cast<int64_t>(draft(row, row.messages, false, false).example.ids.size()); });
}

std::string describe_example(const Example& example, const Tokenizer& tokenizer) {
  std::string text, shown_before;
  std::vector<int64_t> shown;  // text decodes differently at its start, so each piece is what a longer text adds
  const auto piece = [&](size_t begin, size_t end) {
    shown.insert(shown.end(), example.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                 example.ids.begin() + static_cast<std::ptrdiff_t>(end));
    std::string now = tokenizer.decode(shown, false);
    std::string added = now.starts_with(shown_before)
                            ? now.substr(shown_before.size())
                            : tokenizer.decode(std::span(example.ids).subspan(begin, end - begin), false);
    shown_before = std::move(now);
    return added;
  };
  size_t image = 0;
  for (size_t t = 0; t < example.ids.size();) {
    if (image < example.image_starts.size() && static_cast<size_t>(example.image_starts[image]) == t) {
      text += fmt::format("[image: {} tokens]", example.image_lengths[image]);
      t += static_cast<size_t>(example.image_lengths[image++]);
      continue;
    }
    const size_t limit =
        image < example.image_starts.size() ? static_cast<size_t>(example.image_starts[image]) : example.ids.size();
    const bool trained = example.labels[t] != kIgnoreLabel;
    size_t end = t;
    while (end < limit && (example.labels[end] != kIgnoreLabel) == trained) ++end;
    text += trained ? "[[" + piece(t, end) + "]]" : piece(t, end);
    t = end;
  }
  return text;
}

}  // namespace vlmtune
