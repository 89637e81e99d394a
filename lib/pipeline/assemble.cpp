#include "lib/pipeline/assemble.h"

#include "lib/base/bytes.h"
#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/base/log.h"
#include "lib/memory/scope.h"
#include "lib/models/config_reader.h"
#include "lib/models/llava/config.h"
#include "lib/models/llava/original.h"
#include "lib/models/similarity.h"
#include "lib/train/embedding_cache.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// The adapter that the model begins with.
std::optional<fs::path> adapter_of(const Recipe& recipe) {
  if (recipe.model.adapter) return *recipe.model.adapter;
  if (recipe.lora && recipe.lora->init_from) return *recipe.lora->init_from;
  return std::nullopt;
}

/// The tower's folder when it stands apart.
std::optional<fs::path> tower_of(const Recipe& recipe) {
  if (recipe.model.vision_tower) return *recipe.model.vision_tower;
  return original_llava_tower(described_by(recipe));
}

/// Whether the model's folder holds more than a language model although the tower stands apart.
bool is_whole(const Recipe& recipe) {
  return !tower_of(recipe) || is_original_llava(ConfigReader::open(fs::path(recipe.model.path) / "config.json"));
}

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

RowFormat to_row_format(DataFormat format) {
  switch (format) {
    case DataFormat::kLlava:
      return RowFormat::kLlava;
    case DataFormat::kSharegpt:
      return RowFormat::kShareGpt;
    case DataFormat::kMessages:
      return RowFormat::kMessages;
    case DataFormat::kQwenVl:
      return RowFormat::kQwenVl;
    default:
      return RowFormat::kAuto;
  }
}

bool optimizer_on_host(const Recipe& recipe) {
  return recipe.memory.offload.optimizer == "cpu" && recipe.hardware.device != "cpu";
}

/// With the optimizer on the host, its fp32 copies are there, and the device has what it computes with.
torch::ScalarType trained_type_of(const Recipe& recipe) {
  return to_scalar_type(optimizer_on_host(recipe) ? recipe.precision.parameters : recipe.precision.trained);
}

/// The host is the CPU's own memory: there only a file is somewhere else.
bool streams_weights(const Recipe& recipe) {
  const auto& parameters = recipe.memory.offload.parameters;
  return parameters == "disk" || (parameters == "cpu" && recipe.hardware.device != "cpu");
}

const char* type_name(kernels::QuantType type) {
  return type == kernels::QuantType::kNf4 ? "nf4" : type == kernels::QuantType::kInt4 ? "int4" : "int8";
}

/// A checkpoint in few bits is used as it is: the recipe may ask for the same or for nothing.
void check_quantization(const Recipe& recipe, const StoredQuantization& stored) {
  const auto& dir = recipe.model.path;
  if (recipe.quantization.bits == 16) return;
  const auto wanted = quantization_options(recipe.quantization).type;
  if (wanted != stored.type)
    throw usage_error("/quantization/type: found {}, but {} holds {}; with quantization.bits 16 it is used as it is",
                      type_name(wanted), dir, type_name(stored.type));
  log_warning("quantization has no effect: {} holds {} already", dir, type_name(stored.type));
}

bool has_weights(const fs::path& path) {
  if (!fs::is_directory(path)) return fs::exists(path);
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".safetensors" || entry.path().extension() == ".bin") return true;
  return false;
}

WeightSource open_source(const fs::path& path, PartKind kind) {
  return {fs::is_directory(path) ? Checkpoint::open(path) : Checkpoint::open_file(path), kind};
}

/// The folder with the tower's weights, and what it is: LLaVA's own checkpoints have a tower that was trained in them.
std::pair<fs::path, PartKind> tower_weights(const Recipe& recipe) {
  const fs::path dir = recipe.model.path;
  const auto tower = tower_of(recipe);
  if (!tower) return {dir, PartKind::kWhole};
  if (is_whole(recipe) && has_weights(dir))
    for (const auto& name : Checkpoint::open(dir).names())
      if (name.find("vision_tower.") != std::string::npos) return {dir, PartKind::kWhole};
  return {*tower, PartKind::kVisionTower};
}

/// How weights are held, whatever the part of the model.
WeightOptions weight_options(const Recipe& recipe, torch::Device device) {
  WeightOptions options;
  options.device = device;
  options.frozen_type = to_scalar_type(recipe.precision.parameters);
  options.stand_in_quantization = read_stored_quantization(recipe.model.path);
  if (auto& stored = options.stand_in_quantization) {
    if (recipe.model.vision_tower)
      stored->skip_modules.insert(stored->skip_modules.end(), {"vision_tower", "multi_modal_projector"});
  } else {
    options.quantization = quantization_options(recipe.quantization);
  }
  if (streams_weights(recipe)) {
    options.is_streamed = [](const std::string& name) {
      return memory_module(name).find("layers.") != std::string::npos;
    };
    options.streamed_from_host = recipe.memory.offload.parameters == "cpu";
  }
  return options;
}

/// A dry run does without files that are not there.
void add_source(const Recipe& recipe, const fs::path& dir, PartKind kind, ModelParts& parts, WeightOptions& options) {
  if (options.device.is_meta() && !has_weights(dir))
    options.stand_in_type = to_scalar_type(declared_precision(dir).value_or(recipe.precision.parameters));
  else
    parts.sources.push_back(open_source(dir, kind));
}

/// LLaVA's own adapters have no list of what they save.
bool adapter_saves(const Recipe& recipe, const std::string& module) {
  if (!recipe.model.adapter) return false;
  const auto adapter = read_adapter_config(*recipe.model.adapter);
  return adapter.original_layout || adapter.saves(module);
}

AdapterConfig lora_config(const Recipe& recipe, VlmModel& model) {
  const auto& lora = *recipe.lora;
  ModulePattern language, vision{lora.vision_target_modules, std::nullopt};
  const bool all = lora.target_modules.kind == TargetModules::Kind::kAllLinear;
  language.names = lora.target_modules.names;
  if (lora.target_modules.kind == TargetModules::Kind::kRegex) language.regex = lora.target_modules.regex;
  AdapterConfig config;
  config.r = lora.r;
  config.alpha = lora.alpha;
  config.dropout = lora.dropout;
  config.use_rslora = lora.use_rslora;
  config.modules_to_save = training_choices(recipe, model.config()).modules_to_save;
  config.original_layout = in_original_layout(model.config());
  config.base_model = recipe.model.path;
  // Full names, since PEFT's endings would also hit the tower, which uses the same ones.
  model.visit_linears([&](const std::string& name, Linear&) {
    const auto component = component_of(name + ".weight");
    const bool wanted = component == Component::kVisionTower     ? vision.matches(name)
                        : component == Component::kLanguageModel ? (all ? name != "lm_head" : language.matches(name))
                                                                 : language.regex && language.matches(name);
    if (wanted) config.target_modules.names.push_back(name);
  });
  return config;
}

}  // namespace

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

std::optional<Precision> declared_precision(const fs::path& model_dir) {
  const auto config = ConfigReader::open(model_dir / "config.json");
  const auto type = [](const ConfigReader& c) { return c.text("dtype", c.text("torch_dtype", "")); };
  auto name = type(config);
  if (name.empty()) name = type(config.object("text_config"));
  if (name == "float32") return Precision::kFp32;
  if (name == "bfloat16") return Precision::kBf16;
  if (name == "float16") return Precision::kFp16;
  return std::nullopt;
}

fs::path described_by(const Recipe& recipe) {
  if (const auto adapter = adapter_of(recipe); adapter && read_adapter_config(*adapter).original_layout)
    if (const auto file = *adapter / "config.json"; fs::exists(file) && is_original_llava(ConfigReader::open(file)))
      return *adapter;
  return recipe.model.path;
}

VlmConfig model_config(const Recipe& recipe) {
  return read_vlm_config(described_by(recipe), tower_of(recipe),
                         {.projector_type = recipe.model.mm_projector_type,
                          .vision_select_layer = recipe.model.vision_select_layer,
                          .projector_width = recipe.model.projector_width,
                          .original_layout = recipe.output.layout == Layout::kLlava,
                          .similarity_head = recipe.model.similarity_head});
}

InputParts assemble_inputs(const Recipe& recipe, Command command) {
  InputParts parts;
  const fs::path dir = recipe.model.path;
  parts.config = model_config(recipe);
  parts.tokenizer = Tokenizer::load(dir);
  parts.chat_template = choose_template(recipe, command, parts.config);
  if (parts.config.vision) {
    parts.image_processor = choose_processor(recipe, parts.config);
    if (!parts.config.vision->picture_text().video_token.empty())
      parts.video_processor = choose_video_processor(recipe, parts.config, *parts.image_processor);
  }
  // A language model that never heard of images: its slots get an id behind both vocabularies.
  if (parts.config.vision && parts.config.image_token_id < 0)
    parts.config.image_token_id = parts.tokenizer->id_of("<image>").value_or(
        std::max(parts.config.text.vocab_size, parts.tokenizer->vocab_size()));
  parts.pad_id = parts.tokenizer->pad_id().value_or(parts.tokenizer->unk_id().value_or(0));
  return parts;
}

ModelParts assemble_model(const Recipe& recipe, const VlmConfig& config, Command command, torch::Device device,
                          std::optional<torch::ScalarType> trained_type) {
  const PhaseScope phase("load");
  const MemoryScope scope(MemoryCategory::kWeights);
  const bool trains = command != Command::kInfer;
  ModelParts parts;
  parts.model = std::make_unique<VlmModel>(
      config, trains && config.vision && recipe.data.embedding_cache ? VlmParts::kWithoutTower : VlmParts::kAll);
  auto options = weight_options(recipe, device);
  const bool whole = is_whole(recipe);
  add_source(recipe, recipe.model.path, whole ? config.whole() : PartKind::kLanguageModel, parts, options);
  if (const auto [dir, kind] = tower_weights(recipe); kind == PartKind::kVisionTower)
    add_source(recipe, dir, kind, parts, options);
  if (recipe.model.projector) add_source(recipe, *recipe.model.projector, PartKind::kProjector, parts, options);
  options.trained_type = trained_type.value_or(trained_type_of(recipe));
  if (options.stand_in_quantization) check_quantization(recipe, *options.stand_in_quantization);
  const auto choices = training_choices(recipe, config);
  if (trains) options.is_trained = [choices](const std::string& name) { return is_trained(name, choices); };
  if (!whole && !recipe.model.projector) {
    if (!trains && !adapter_saves(recipe, "multi_modal_projector"))
      throw usage_error("/model/projector: is needed beside /model/vision_tower, unless /model/adapter holds one");
  }
  // What an adapter holds takes their place.
  const bool fresh_projector = !whole && !recipe.model.projector,
             fresh_head = trains || adapter_saves(recipe, "similarity_head");
  options.fresh = [&](const std::string& name, torch::IntArrayRef shape) {
    auto values =
        fresh_projector ? fresh_projector_tensor(name, shape, recipe.train.seed, config, device) : std::nullopt;
    return values || !fresh_head ? values : fresh_similarity_tensor(name, shape, device);
  };
  load_weights(*parts.model, parts.sources, options);
  if (recipe.model.adapter) {
    parts.adapter = load_adapter(*parts.model, *recipe.model.adapter);
  } else if (trains && recipe.lora) {
    if (recipe.lora->init_from) {
      parts.adapter = load_adapter(*parts.model, *recipe.lora->init_from);
      for (const auto& module : choices.modules_to_save)
        if (!parts.adapter->saves(module)) parts.adapter->modules_to_save.push_back(module);
    } else {
      parts.adapter = lora_config(recipe, *parts.model);
      attach_lora(*parts.model, *parts.adapter, recipe.train.seed);
    }
  }
  return parts;
}

ModelParts assemble_tower(const Recipe& recipe, const VlmConfig& config, torch::Device device) {
  const MemoryScope scope(MemoryCategory::kWeights);
  ModelParts parts;
  parts.model = std::make_unique<VlmModel>(config, VlmParts::kTower);
  auto options = weight_options(recipe, device);
  options.in_place = false;
  const auto [dir, kind] = tower_weights(recipe);
  add_source(recipe, dir, kind, parts, options);
  load_weights(*parts.model, parts.sources, options);
  return parts;
}

WeightSource tower_source(const Recipe& recipe) {
  const auto [dir, kind] = tower_weights(recipe);
  return open_source(dir, kind);
}

torch::ScalarType to_scalar_type(Precision precision) {
  return precision == Precision::kFp32   ? torch::kFloat
         : precision == Precision::kBf16 ? torch::kBFloat16
                                         : torch::kHalf;
}

QuantizationOptions quantization_options(const QuantizationRecipe& recipe) {
  QuantizationOptions options;
  if (recipe.bits == 16) return options;
  options.type = recipe.type == QuantizationType::kNf4    ? kernels::QuantType::kNf4
                 : recipe.type == QuantizationType::kInt4 ? kernels::QuantType::kInt4
                                                          : kernels::QuantType::kInt8;
  options.double_quant = recipe.double_quant;
  options.applies = [skipped = recipe.skip_modules](const std::string& module) {
    const auto path = "." + module + ".";
    const auto component = component_name(component_of(module));
    return std::none_of(skipped.begin(), skipped.end(), [&](const auto& name) {
      return name == component || path.find("." + name + ".") != std::string::npos;
    });
  };
  return options;
}

TrainingChoices training_choices(const Recipe& recipe, const VlmConfig& config) {
  TrainingChoices choices;
  choices.vision_tower = !recipe.freeze.vision_tower;
  choices.projector = !recipe.freeze.projector;
  choices.language_model = !recipe.freeze.language_model;
  if (recipe.lora) {  // what else trains must have a place in the adapter
    auto& saved = choices.modules_to_save;
    const auto add = [&](std::vector<std::string> modules) {
      saved.insert(saved.end(), modules.begin(), modules.end());
    };
    add(recipe.lora->modules_to_save);
    if (choices.projector && config.vision) add(config.vision->projector_modules());
    if (config.similarity_head) add({"similarity_head"});
    if (choices.vision_tower && config.vision) add(config.vision->tower_modules());
    choices.projector = choices.vision_tower = false;
  }
  choices.learning_rate = recipe.optimizer.learning_rate;
  choices.projector_learning_rate = recipe.optimizer.projector_learning_rate;
  choices.vision_learning_rate = recipe.optimizer.vision_learning_rate;
  choices.weight_decay = recipe.optimizer.weight_decay;
  return choices;
}

StepOptions step_options(const Recipe& recipe, const InputParts& inputs) {
  StepOptions options;
  options.compute_type = to_scalar_type(recipe.precision.compute);
  options.mode = {.training = true,
                  .language_checkpointing = RecomputePolicy::parse(recipe.memory.checkpointing),
                  .vision_checkpointing = recipe.freeze.vision_tower
                                              ? RecomputePolicy()
                                              : RecomputePolicy::parse(recipe.memory.vision_checkpointing)};
  const bool apart = recipe.hardware.device != "cpu";  // the host's memory is not the device's
  options.mode.language_checkpointing.inputs_on_host = options.mode.vision_checkpointing.inputs_on_host =
      apart && recipe.memory.offload.activations == "cpu";
  options.gradients_on_host = apart && recipe.memory.offload.gradients == "cpu";
  options.optimizer_in_backward = recipe.memory.optimizer_in_backward;
  if (inputs.config.similarity_head) options.similarity_weight = recipe.train.similarity_weight;
  options.loss_chunk_tokens = recipe.memory.loss_chunk_tokens;
  options.pad_id = inputs.pad_id;
  options.seed = static_cast<uint64_t>(recipe.train.seed);
  return options;
}

std::unique_ptr<Optimizer> make_optimizer(const Recipe& recipe, VlmModel& model) {
  auto trained = select_trained(model, training_choices(recipe, model.config()));
  if (recipe.memory.offload.gradients == "cpu" && optimizer_on_host(recipe))
    for (auto& t : trained) t.host_gradient = std::make_shared<Tensor>();
  if (trained.empty())
    throw usage_error("/freeze: everything is frozen and there is no LoRA: nothing would be trained");
  const auto& o = recipe.optimizer;
  const bool on_host = optimizer_on_host(recipe);
  if (o.name == OptimizerName::kLion) return std::make_unique<Lion>(std::move(trained), o.betas, on_host);
  const AdamWOptions options{o.betas, o.eps};
  if (o.name == OptimizerName::kAdamw8bit) return std::make_unique<AdamW8bit>(std::move(trained), options, on_host);
  return std::make_unique<AdamW>(std::move(trained), options, on_host);
}

Schedule make_schedule(const Recipe& recipe, int64_t total_steps) {
  Schedule schedule;
  schedule.shape = recipe.schedule.type == ScheduleType::kConstant ? ScheduleShape::kConstant
                   : recipe.schedule.type == ScheduleType::kLinear ? ScheduleShape::kLinear
                                                                   : ScheduleShape::kCosine;
  schedule.total_steps = total_steps;
  schedule.warmup_steps = recipe.schedule.warmup_steps.value_or(
      static_cast<int64_t>(std::ceil(recipe.schedule.warmup_ratio * static_cast<double>(total_steps))));
  schedule.min_ratio = recipe.schedule.min_lr_ratio;
  return schedule;
}

LossScaler make_loss_scaler(const Recipe& recipe) {
  if (recipe.precision.compute != Precision::kFp16) return LossScaler::none();
  const auto& scale = recipe.precision.loss_scale;
  return scale.dynamic ? LossScaler::automatic() : LossScaler(scale.value, false);
}

LoaderOptions loader_options(const Recipe& recipe) {
  LoaderOptions options;
  options.micro_batch_size = recipe.train.per_device_batch_size;
  options.micro_batch_tokens = recipe.train.max_tokens_per_batch.value_or(0);
  const auto stages = recipe.schedule.accumulation_stages.value_or(
      std::vector<AccumulationStage>{{std::nullopt, recipe.train.gradient_accumulation_steps}});
  options.accumulation = [stages](int64_t step) {
    const auto stage = std::find_if(stages.begin(), stages.end(),
                                    [&](const auto& s) { return !s.until_step || step < *s.until_step; });
    return static_cast<int>(stage->steps);
  };
  options.seed = static_cast<uint64_t>(recipe.train.seed);
  options.shuffle = recipe.train.shuffle;
  options.packing = recipe.data.packing;
  options.group_by_modality_length =
      recipe.data.group_by_modality_length && recipe.train.shuffle && !recipe.data.packing;
  options.num_workers = static_cast<int>(recipe.data.num_workers);
  options.prefetch_bytes = parse_bytes(recipe.data.prefetch).value();  // checked when the recipe was read
  options.bad_sample_budget = recipe.data.bad_sample_budget;
  return options;
}

Dataset open_training_data(const Recipe& recipe) {
  DatasetOptions options;
  for (const auto& source : recipe.data.train) options.files.push_back({source.path, source.weight});
  options.image_folder = recipe.data.image_folder.value_or("");
  options.format = to_row_format(recipe.data.format);
  return Dataset::open(options);
}

std::optional<Dataset> open_validation_data(const Recipe& recipe) {
  if (recipe.data.validation.empty()) return std::nullopt;
  DatasetOptions options;
  for (const auto& path : recipe.data.validation) options.files.push_back({path, 1});
  options.image_folder = recipe.data.image_folder.value_or("");
  options.format = to_row_format(recipe.data.format);
  return Dataset::open(options);
}

}  // namespace vlmtune
