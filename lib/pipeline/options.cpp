#include "lib/pipeline/options.h"

#include "lib/base/bytes.h"
#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/models/llava/config.h"
#include "lib/optim/adamw.h"
#include "lib/optim/lion.h"

namespace vlmtune {
namespace {

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

}  // namespace

torch::ScalarType to_scalar_type(Precision precision) {
  return precision == Precision::kFp32   ? torch::kFloat
         : precision == Precision::kBf16 ? torch::kBFloat16
                                         : torch::kHalf;
}

torch::ScalarType trained_type_of(const Recipe& recipe) {
  return to_scalar_type(optimizer_on_host(recipe) ? recipe.precision.parameters : recipe.precision.trained);
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
    for (auto& t : trained) t.host_gradient = std::make_shared<HostGradient>();
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
