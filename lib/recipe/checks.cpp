#include "lib/recipe/checks.h"

#include "lib/base/bytes.h"
#include "lib/base/errors.h"
#include "lib/base/log.h"

namespace vlmtune {
namespace {

void require(const std::string& origin, bool present, const char* pointer, Command command, const char* hint) {
  if (!present) throw usage_error("{}: {}: not given, {} needs it ({})", origin, pointer, command_name(command), hint);
}

void check_inputs(const Recipe& r, Command command, const std::string& origin) {
  require(origin, !r.model.path.empty(), "/model/path", command, "a model folder");
  if (command == Command::kInfer) return;
  require(origin, !r.data.train.empty(), "/data/train", command, "at least one data file");
  require(origin, r.output.dir.has_value() && !r.output.dir->empty(), "/output/dir", command, "the run directory");
}

void check_model_and_image(const Recipe& r, const std::string& origin) {
  if (r.image.min_pixels && r.image.max_pixels && *r.image.min_pixels > *r.image.max_pixels)
    throw usage_error("{}: /image/min_pixels: found {}, expected at most max_pixels {}", origin, *r.image.min_pixels,
                      *r.image.max_pixels);
  if (r.image.grid_pinpoints && !r.image.aspect_ratio.starts_with("anyres") && r.image.aspect_ratio != "model")
    log_warning("{}: image.grid_pinpoints has no effect with image.aspect_ratio {}", origin, r.image.aspect_ratio);
}

void check_quantization(const QuantizationRecipe& q, const std::string& origin) {
  if (q.bits != 16 && (q.bits == 8) != (q.type == QuantizationType::kInt8))
    throw usage_error("{}: /quantization/type: {} bits are {}", origin, q.bits, q.bits == 8 ? "int8" : "nf4 or int4");
}

/// What lies on the host already needs no place there.
void check_offload(const Recipe& r, const std::string& origin) {
  const auto& offload = r.memory.offload;
  if (r.quantization.bits != 16 && offload.parameters != "none")
    throw usage_error(
        "{}: /memory/offload/parameters: found \"{}\" beside {} bits, expected \"none\": weights that are quantised "
        "while they are read stay in memory; what vlmtune quantize has written comes and goes",
        origin, offload.parameters, r.quantization.bits);
  if (offload.gradients == "cpu" && offload.optimizer != "cpu")
    throw usage_error(
        "{}: /memory/offload/gradients: found \"cpu\" beside optimizer \"{}\", expected both on the CPU: the "
        "update takes place where the optimizer's state is",
        origin, offload.optimizer);
  if (r.memory.optimizer_in_backward) {
    if (r.optimizer.max_grad_norm > 0)
      throw usage_error(
          "{}: /memory/optimizer_in_backward: found true beside /optimizer/max_grad_norm {}, expected 0: the "
          "norm of all gradients is only known when none may be gone yet",
          origin, r.optimizer.max_grad_norm);
    if (r.train.gradient_accumulation_steps > 1 || r.schedule.accumulation_stages)
      throw usage_error(
          "{}: /memory/optimizer_in_backward: found true beside {} micro-batches a step, expected 1", origin,
          r.schedule.accumulation_stages
              ? "stages of"
              : "/train/gradient_accumulation_steps " + std::to_string(r.train.gradient_accumulation_steps));
    if (r.precision.compute == Precision::kFp16 || offload.gradients == "cpu")
      throw usage_error("{}: /memory/optimizer_in_backward: found true beside {}, expected false", origin,
                        offload.gradients == "cpu"
                            ? "/memory/offload/gradients cpu"
                            : "/precision/compute fp16, whose scaled gradients are looked at together");
  }
  for (const auto& [key, place] : {std::pair{"optimizer", offload.optimizer},
                                   {"gradients", offload.gradients},
                                   {"parameters", offload.parameters},
                                   {"activations", offload.activations}})
    if (place == "cpu" && r.hardware.device == "cpu")
      log_warning("{}: memory.offload.{}: cpu has no effect where the CPU computes", origin, key);
}

void check_stages(const std::vector<AccumulationStage>& stages, const std::string& origin) {
  constexpr const char* kPointer = "/schedule/accumulation_stages";
  if (stages.empty()) throw usage_error("{}: {}: found [], expected at least one stage, or null", origin, kPointer);
  int64_t before = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto& until = stages[i].until_step;
    const bool last = i + 1 == stages.size();
    if (last && until)
      throw usage_error("{}: {}/{}/until_step: found {}, expected none: the last stage lasts to the end", origin,
                        kPointer, i, *until);
    if (last) break;
    if (!until)
      throw usage_error("{}: {}/{}/until_step: not given, only the last stage needs none", origin, kPointer, i);
    if (*until <= before)
      throw usage_error("{}: {}/{}/until_step: found {}, expected more than {}", origin, kPointer, i, *until, before);
    before = *until;
  }
}

void check_similarity(const Recipe& r, const std::string& origin) {
  constexpr const char* kPointer = "/model/similarity_head";
  if (r.data.packing || r.train.max_tokens_per_batch)
    throw usage_error("{}: {}: found true beside {}, expected rows of their own in batches of one size", origin,
                      kPointer, r.data.packing ? "data.packing" : "train.max_tokens_per_batch");
  if (r.train.per_device_batch_size < 2)
    throw usage_error(
        "{}: {}: found true beside train.per_device_batch_size 1, expected at least 2: pictures are told from each "
        "other",
        origin, kPointer);
  if (r.memory.optimizer_in_backward)
    throw usage_error("{}: {}: found true beside memory.optimizer_in_backward, expected only one of the two", origin,
                      kPointer);
}

void check_training(const Recipe& r, Command command, const std::string& origin) {
  if (command == Command::kPretrain && r.freeze.vision_tower && r.freeze.projector && r.freeze.language_model)
    throw usage_error("{}: /freeze: everything is frozen, expected at least one part to train", origin);
  if (command == Command::kLoraFinetune && !r.freeze.language_model)
    throw usage_error(
        "{}: /freeze/language_model: found false, expected true beside LoRA; full fine-tuning is pretrain "
        "with freeze.language_model false",
        origin);
  if (r.data.embedding_cache && !r.freeze.vision_tower)
    throw usage_error(
        "{}: /data/embedding_cache: found \"{}\" beside /freeze/vision_tower false, expected null: the features of a "
        "tower that trains change",
        origin, *r.data.embedding_cache);
  if (r.data.embedding_cache && r.lora && !r.lora->vision_target_modules.empty())
    throw usage_error(
        "{}: /data/embedding_cache: found \"{}\" beside /lora/vision_target_modules, expected null: the features of a "
        "tower that trains change",
        origin, *r.data.embedding_cache);
  if (r.data.packing && r.data.group_by_modality_length)
    log_warning("{}: data.group_by_modality_length has no effect with data.packing", origin);
  if (parse_bytes(r.data.prefetch).value_or(0) <= 0)
    throw usage_error("{}: /data/prefetch: found \"{}\", expected a size such as 256MiB", origin, r.data.prefetch);
  if (const auto tokens = r.train.max_tokens_per_batch) {
    if (*tokens < r.data.max_length)
      throw usage_error("{}: /train/max_tokens_per_batch: found {}, expected at least data.max_length {}", origin,
                        *tokens, r.data.max_length);
    if (r.data.packing)
      throw usage_error(
          "{}: /train/max_tokens_per_batch: found {} beside data.packing, which fills rows of max_length, expected "
          "only one of the two",
          origin, *tokens);
    if (r.train.global_batch_size)
      throw usage_error(
          "{}: /train/max_tokens_per_batch: found {} beside global_batch_size {}, a number of rows, expected only one "
          "of the two",
          origin, *tokens, *r.train.global_batch_size);
  }
  if (r.schedule.accumulation_stages) check_stages(*r.schedule.accumulation_stages, origin);
  if (r.schedule.warmup_steps.value_or(0) > 0 && r.schedule.warmup_ratio > 0)
    throw usage_error("{}: /schedule/warmup_steps: found {} beside warmup_ratio {}, expected only one of the two",
                      origin, *r.schedule.warmup_steps, r.schedule.warmup_ratio);
  if (r.train.max_steps && r.schedule.warmup_steps && *r.schedule.warmup_steps > *r.train.max_steps)
    throw usage_error("{}: /schedule/warmup_steps: found {}, expected at most train.max_steps {}", origin,
                      *r.schedule.warmup_steps, *r.train.max_steps);
  if (r.model.similarity_head) check_similarity(r, origin);
  if (r.train.eval_steps > 0 && r.data.validation.empty())
    throw usage_error("{}: /train/eval_steps: found {} without data.validation, expected 0", origin,
                      r.train.eval_steps);
  if (!r.train.eval_metrics.empty() && r.data.validation.empty())
    throw usage_error("{}: /train/eval_metrics: found {} names without data.validation, expected none", origin,
                      r.train.eval_metrics.size());
  if (!r.model.similarity_head &&
      std::find(r.train.eval_metrics.begin(), r.train.eval_metrics.end(), "retrieval") != r.train.eval_metrics.end())
    throw usage_error("{}: /train/eval_metrics: found \"retrieval\", which needs model.similarity_head", origin);
  if (r.train.eval_metrics.empty() && r.generation != GenerationRecipe())
    log_warning("{}: generation has no effect without train.eval_metrics", origin);
  if (!r.precision.loss_scale.dynamic && r.precision.compute != Precision::kFp16)
    log_warning("{}: precision.loss_scale has no effect with precision.compute {}", origin,
                recipe_name(r.precision.compute));
  if (r.optimizer.projector_learning_rate && r.freeze.projector)
    log_warning("{}: optimizer.projector_learning_rate has no effect on a frozen projector", origin);
  if (r.optimizer.vision_learning_rate && r.freeze.vision_tower && (!r.lora || r.lora->vision_target_modules.empty()))
    log_warning("{}: optimizer.vision_learning_rate has no effect on a frozen vision tower", origin);
}

}  // namespace

void check_recipe(const Recipe& recipe, Command command, const std::string& origin, bool require_inputs) {
  if (recipe.memory.budget && parse_bytes(*recipe.memory.budget).value_or(0) <= 0)
    throw usage_error("{}: /memory/budget: found \"{}\", expected a size such as 8GB or 7.5GiB", origin,
                      *recipe.memory.budget);
  check_model_and_image(recipe, origin);
  check_quantization(recipe.quantization, origin);
  check_offload(recipe, origin);
  if (command != Command::kInfer) check_training(recipe, command, origin);
  if (require_inputs) check_inputs(recipe, command, origin);
}

void check_set_alternatives(const std::vector<Layer>& set_layers) {
  for (const auto& [one, other] : kAlternatives) {
    const Layer *has_one = nullptr, *has_other = nullptr;
    for (const auto& layer : set_layers) {
      if (find_setting(layer.content, one.section, one.key) != nullptr) has_one = &layer;
      if (find_setting(layer.content, other.section, other.key) != nullptr) has_other = &layer;
    }
    if (has_one != nullptr && has_other != nullptr)
      throw usage_error("{} and {}: expected only one of the two", has_one->origin, has_other->origin);
  }
}

}  // namespace vlmtune
