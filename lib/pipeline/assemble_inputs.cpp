#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/models/config_reader.h"
#include "lib/pipeline/assemble.h"
#include "lib/pipeline/model_files.h"
#include "lib/train/embedding_cache.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

ChatTemplate choose_template(const Recipe& recipe, Command command, const VlmConfig& config) {
  const fs::path dir = recipe.model.path;
  TemplateTokens tokens;
  if (config.vision) {
    const auto picture = config.vision->picture_text();
    tokens.image_token = picture.token;
    tokens.video_token = picture.video_token;
    tokens.image_before = picture.before;
    tokens.image_after = picture.after;
  }
  if (recipe.model.chat_template) return ChatTemplate::from_checkpoint(dir, *recipe.model.chat_template, tokens);
  // Alignment of a projector to a frozen language model: image, caption, newline (LLaVA's "plain").
  if (command == Command::kPretrain && recipe.freeze.language_model && config.vision)
    return ChatTemplate::named("plain", tokens);
  auto own = ChatTemplate::from_checkpoint(dir, "", tokens);
  if (!own.empty() || !config.vision || config.vision->chat_template().empty()) return own;
  return ChatTemplate::from_checkpoint(dir, config.vision->chat_template(), tokens);
}

/// Published limits reach 16384 tokens a picture: a bound that nobody asked for must not be what fills the memory.
constexpr int64_t kMostTokens = 1280;

/// `most` is the recipe's `key`, null where it does not say.
void limit_pixels(ImageProcessor& p, const std::optional<int64_t>& most, const char* key) {
  const int64_t block = int64_t{p.patch_size} * p.merge_size;
  p.max_pixels = most.value_or(std::min(p.max_pixels, kMostTokens * block * block));
  if (p.max_pixels < block * block)
    throw usage_error("{}: found {}, expected at least {}, which is one token", key, p.max_pixels, block * block);
  p.min_pixels = std::min(p.min_pixels, p.max_pixels);
}

/// Sides and limits that the recipe chooses over the processor's own.
void apply_image_choices(const ImageRecipe& image, const VlmConfig& config, ImageProcessor& p) {
  const auto& aspect = image.aspect_ratio;
  const bool anyres = p.aspect_ratio == AspectRatio::kAnyres, dynamic = p.aspect_ratio == AspectRatio::kDynamic;
  if (aspect != "model" && (aspect.starts_with("anyres") != anyres || (aspect == "dynamic") != dynamic))
    throw usage_error("/image/aspect_ratio: found \"{}\", which a {} model cannot take", aspect, config.model_type);
  if (aspect == "square") p.aspect_ratio = AspectRatio::kSquare;
  if (aspect == "pad") p.aspect_ratio = AspectRatio::kPad;
  for (const auto& [key, value] : {std::pair{"min_pixels", image.min_pixels},
                                   {"max_pixels", image.max_pixels},
                                   {"video_max_pixels", image.video_max_pixels}})
    if (value && !dynamic)
      throw usage_error("/image/{}: found {}, but a {} model takes pictures of one size", key, *value,
                        config.model_type);
  if (!dynamic) return;
  if (image.min_pixels) p.min_pixels = *image.min_pixels;
  limit_pixels(p, image.max_pixels, "/image/max_pixels");
}

ImageProcessor choose_processor(const Recipe& recipe, const VlmConfig& config, bool dry_run) {
  const fs::path dir = tower_of(recipe).value_or(recipe.model.path);
  const bool has_file = fs::exists(dir / "preprocessor_config.json") || fs::exists(dir / "processor_config.json");
  const bool needs_file = !dry_run && !config.vision->has_own_processor();
  auto processor = needs_file || has_file ? ImageProcessor::load(dir) : config.vision->default_processor();
  config.vision->adapt(processor, dir.string());
  if (processor.one_tile_in_company && recipe.data.embedding_cache)
    throw usage_error(
        "/data/embedding_cache: found \"{}\", expected null: what a {} model makes of a picture depends on the "
        "pictures "
        "beside it",
        *recipe.data.embedding_cache, config.model_type);
  apply_image_choices(recipe.image, config, processor);
  return processor;
}

/// Of frames: the folder's own, or that of pictures.
ImageProcessor choose_video_processor(const Recipe& recipe, const VlmConfig& config,
                                      const ImageProcessor& of_pictures) {
  const fs::path file = fs::path(recipe.model.path) / "video_preprocessor_config.json";
  auto processor = fs::exists(file) ? ImageProcessor::parse(read_file(file), file.string()) : of_pictures;
  config.vision->adapt_video(processor, file.string());
  processor.frames_per_second = recipe.image.video_fps;
  if (processor.aspect_ratio == AspectRatio::kDynamic)
    limit_pixels(processor, recipe.image.video_max_pixels, "/image/video_max_pixels");
  return processor;
}

}  // namespace

void choose_processors(const Recipe& recipe, InputParts& parts, bool dry_run) {
  parts.image_processor = choose_processor(recipe, parts.config, dry_run);
  if (!parts.config.vision->picture_text().video_token.empty())
    parts.video_processor = choose_video_processor(recipe, parts.config, *parts.image_processor);
}

ExampleOptions InputParts::example_options(const Recipe& recipe, std::shared_ptr<const EmbeddingCache> cache) const {
  ExampleOptions options;
  options.tokenizer = tokenizer.get();
  options.chat_template = &chat_template;
  options.image_processor = image_processor ? &*image_processor : nullptr;
  options.video_processor = video_processor ? &*video_processor : nullptr;
  options.image_tokens = [vision = config.vision](const PictureShape& picture) {
    return vision->image_tokens(picture);
  };
  if (config.vision) {
    if (const auto text = config.vision->picture_text(); text.slot_per_time)
      options.time_brackets = TimeBrackets{text.before, text.after};
    options.box_style = config.vision->box_style();
    options.resized_size = [processor = image_processor](ImageSize original) {
      const auto shape = processor->shape_of(original);
      return ImageSize{shape.width, shape.height};
    };
  }
  if (cache)
    options.features = [cache](const std::string& encoded, const std::string& name) {
      auto features = cache->find(sha256_hex(encoded));
      if (!features) {
        decode_image(std::as_bytes(std::span(encoded)), name);  // says what is wrong with a picture that was left out
        throw input_error("{}: is not in the embedding cache; has it changed since the run began?", name);
      }
      return features;
    };
  options.image_token_id = config.image_token_id;
  options.video_token_id = config.video_token_id;
  options.max_length = recipe.data.max_length;
  options.over_length = recipe.data.truncation == Truncation::kCutText ? OverLength::kCutText
                        : recipe.data.truncation == Truncation::kError ? OverLength::kError
                                                                       : OverLength::kDrop;
  options.vocab_size = config.text.vocab_size;
  // As a processor encodes a rendered template.
  options.prompt = {.add_bos = tokenizer->adds_bos(), .end_answers_with_eos = !chat_template.answers_end_themselves()};
  return options;
}

InputParts assemble_inputs(const Recipe& recipe, Command command) {
  InputParts parts;
  const fs::path dir = recipe.model.path;
  parts.config = model_config(recipe);
  parts.tokenizer = Tokenizer::load(dir);
  parts.chat_template = choose_template(recipe, command, parts.config);
  if (parts.config.vision) choose_processors(recipe, parts);
  // A language model that never heard of images: its slots get an id behind both vocabularies.
  if (parts.config.vision && parts.config.image_token_id < 0)
    parts.config.image_token_id = parts.tokenizer->id_of("<image>").value_or(
        std::max(parts.config.text.vocab_size, parts.tokenizer->vocab_size()));
  parts.pad_id = parts.tokenizer->pad_id().value_or(parts.tokenizer->unk_id().value_or(0));
  return parts;
}

}  // namespace vlmtune
