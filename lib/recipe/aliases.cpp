#include "lib/recipe/aliases.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/recipe/recipe_keys.h"

namespace vlmtune {
namespace {

Value on_to_full(const Value& value) {
  if (const auto* on = value.boolean()) return *on ? "full" : "none";
  return value;
}
Value format_if_on(const Value& value, const char* format) {
  if (const auto* on = value.boolean()) return *on ? format : "fp32";
  return value;
}
Value bf16_if_on(const Value& value) { return format_if_on(value, "bf16"); }
Value fp16_if_on(const Value& value) { return format_if_on(value, "fp16"); }

struct Renamed {
  std::string_view from;
  const char* to;
};
Value rename(const Value& value, std::initializer_list<Renamed> names) {
  if (const auto* text = value.text())
    for (const auto& [from, to] : names)
      if (*text == from) return to;
  return value;
}
Value truncation_name(const Value& value) {
  return rename(value, {{"delete", "drop"}, {"left", "cut_text"}, {"right", "cut_text"}, {"raise", "error"}});
}
Value optimizer_name(const Value& value) {
  return rename(value, {{"adamw_torch", "adamw"},
                        {"adamw_torch_fused", "adamw"},
                        {"adamw_hf", "adamw"},
                        {"adamw_bnb_8bit", "adamw8bit"},
                        {"adamw_8bit", "adamw8bit"},
                        {"paged_adamw_8bit", "adamw8bit"},
                        {"lion_32bit", "lion"}});
}
Value schedule_name(const Value& value) { return rename(value, {{"constant_with_warmup", "constant"}}); }
Value kv_cache_name(const Value& value) {
  if (const auto* bits = value.integer())
    return *bits == 8 ? Value("int8") : *bits == 4 ? Value("int4") : *bits == 16 ? Value("compute") : value;
  return value;
}

/// "all", "q_proj,v_proj" and plain regular expressions, as the other tools take them.
Value target_modules(const Value& value) {
  const auto* text = value.text();
  if (text == nullptr || text->empty() || *text == "all-linear" || text->starts_with("regex:")) return value;
  if (*text == "all") return "all-linear";
  const bool names = std::all_of(text->begin(), text->end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == ',';
  });
  if (!names) return "regex:" + *text;
  Array list;
  for (size_t begin = 0; begin <= text->size();) {
    const auto end = std::min(text->find(',', begin), text->size());
    if (end > begin) list.emplace_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

constexpr Alias kAliases[] = {
    {"model_name_or_path", "model", "path"},
    {"vision_tower", "model", "vision_tower"},
    {"pretrain_mm_mlp_adapter", "model", "projector"},
    {"mm_projector_type", "model", "mm_projector_type"},
    {"mm_vision_select_layer", "model", "vision_select_layer"},
    {"vision_feature_layer", "model", "vision_select_layer"},
    {"adapter_name_or_path", "model", "adapter"},
    {"chat_template", "model", "chat_template"},
    {"data_path", "data", "train"},
    {"image_folder", "data", "image_folder"},
    {"max_length", "data", "max_length"},
    {"model_max_length", "data", "max_length"},
    {"max_seq_length", "data", "max_length"},
    {"cutoff_len", "data", "max_length"},
    {"truncation_strategy", "data", "truncation", truncation_name},
    {"group_by_modality_length", "data", "group_by_modality_length"},
    {"packing", "data", "packing"},
    {"neat_packing", "data", "packing"},
    {"dataloader_num_workers", "data", "num_workers"},
    {"image_aspect_ratio", "image", "aspect_ratio"},
    {"image_grid_pinpoints", "image", "grid_pinpoints"},
    {"image_min_pixels", "image", "min_pixels"},
    {"image_max_pixels", "image", "max_pixels"},
    {"min_pixels", "image", "min_pixels"},
    {"max_pixels", "image", "max_pixels"},
    {"video_max_pixels", "image", "video_max_pixels"},
    {"video_fps", "image", "video_fps"},
    {"freeze_vit", "freeze", "vision_tower"},
    {"freeze_vision_tower", "freeze", "vision_tower"},
    {"freeze_aligner", "freeze", "projector"},
    {"freeze_merger", "freeze", "projector"},
    {"freeze_projector", "freeze", "projector"},
    {"freeze_multi_modal_projector", "freeze", "projector"},
    {"freeze_llm", "freeze", "language_model"},
    {"freeze_language_model", "freeze", "language_model"},
    {"lora_r", "lora", "r"},
    {"lora_rank", "lora", "r"},
    {"rank", "lora", "r"},
    {"lora_alpha", "lora", "alpha"},
    {"lora_dropout", "lora", "dropout"},
    {"lora_bias", "lora", "bias"},
    {"lora_target_modules", "lora", "target_modules", target_modules},
    {"lora_target", "lora", "target_modules", target_modules},
    {"target_modules", "lora", "target_modules", target_modules},
    {"use_rslora", "lora", "use_rslora"},
    {"modules_to_save", "lora", "modules_to_save"},
    {"bits", "quantization", "bits"},
    {"quant_bits", "quantization", "bits"},
    {"quantization_bit", "quantization", "bits"},
    {"quant_type", "quantization", "type"},
    {"double_quant", "quantization", "double_quant"},
    {"bf16", "precision", "compute", bf16_if_on},
    {"pure_bf16", "precision", "trained", bf16_if_on},
    {"fp16", "precision", "compute", fp16_if_on},
    {"gradient_checkpointing", "memory", "checkpointing", on_to_full},
    {"vit_gradient_checkpointing", "memory", "vision_checkpointing", on_to_full},
    {"optim", "optimizer", "name", optimizer_name},
    {"learning_rate", "optimizer", "learning_rate"},
    {"mm_projector_lr", "optimizer", "projector_learning_rate"},
    {"projector_lr", "optimizer", "projector_learning_rate"},
    {"aligner_lr", "optimizer", "projector_learning_rate"},
    {"merger_lr", "optimizer", "projector_learning_rate"},
    {"vision_tower_lr", "optimizer", "vision_learning_rate"},
    {"mm_vision_tower_lr", "optimizer", "vision_learning_rate"},
    {"vision_lr", "optimizer", "vision_learning_rate"},
    {"vit_lr", "optimizer", "vision_learning_rate"},
    {"weight_decay", "optimizer", "weight_decay"},
    {"max_grad_norm", "optimizer", "max_grad_norm"},
    {"lr_scheduler_type", "schedule", "type", schedule_name},
    {"warmup_ratio", "schedule", "warmup_ratio"},
    {"warmup_steps", "schedule", "warmup_steps"},
    {"num_train_epochs", "train", "num_train_epochs"},
    {"max_steps", "train", "max_steps"},
    {"per_device_train_batch_size", "train", "per_device_batch_size"},
    {"per_device_batch_size", "train", "per_device_batch_size"},
    {"micro_batch_size", "train", "per_device_batch_size"},
    {"max_tokens_per_batch", "train", "max_tokens_per_batch"},
    {"gradient_accumulation_steps", "train", "gradient_accumulation_steps"},
    {"global_batch_size", "train", "global_batch_size"},
    {"logging_steps", "train", "logging_steps"},
    {"save_steps", "train", "save_steps"},
    {"eval_steps", "train", "eval_steps"},
    {"seed", "train", "seed"},
    {"output_dir", "output", "dir"},
    {"save_total_limit", "output", "save_total_limit"},
    {"max_new_tokens", "generation", "max_new_tokens"},
    {"temperature", "generation", "temperature"},
    {"top_p", "generation", "top_p"},
    {"top_k", "generation", "top_k"},
    {"repetition_penalty", "generation", "repetition_penalty"},
    {"kv_bits", "generation", "kv_cache", kv_cache_name},
};

const Alias* find_alias(std::string_view name) {
  for (const auto& alias : kAliases)
    if (alias.name == name) return &alias;
  return nullptr;
}

/// One alias met in the document: `section` is where it stood, empty for the top level.
struct Found {
  const Alias* alias;
  std::string section, name;
  Value value;
};

std::string dotted(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

void take_aliases(Object& object, std::string_view section, std::vector<Found>& found) {
  const auto& real = section_keys(section);
  for (const auto& [name, value] : object)
    if (const auto* alias = find_alias(name);
        alias != nullptr && std::find(real.begin(), real.end(), name) == real.end())
      found.push_back({alias, std::string(section), name, value});
  for (const auto& entry : found)
    if (entry.section == section) object.erase(entry.name);
}

/// HF's "bf16": false beside "fp16": true says nothing on its own.
void drop_contradicted_format(std::vector<Found>& found) {
  const auto is_format = [](const Found& entry) { return entry.name == "bf16" || entry.name == "fp16"; };
  const bool any_on = std::any_of(found.begin(), found.end(), [&](const Found& entry) {
    return is_format(entry) && entry.value.boolean() != nullptr && *entry.value.boolean();
  });
  if (any_on) std::erase_if(found, [&](const Found& entry) { return is_format(entry) && entry.value == Value(false); });
}

}  // namespace

std::span<const Alias> alias_table() { return kAliases; }

void resolve_aliases(Object& document, std::string_view origin) {
  std::vector<Found> found;
  take_aliases(document, "", found);
  for (auto& [section, value] : document)
    if (value.object() != nullptr && section != "hardware" && !section_keys(section).empty())
      take_aliases(*value.object(), section, found);
  drop_contradicted_format(found);
  for (const auto& [alias, section, name, value] : found) {
    Value& target = document[alias->section];
    if (target.is_null()) target = Object{};
    if (target.object() == nullptr)
      throw usage_error("{}: /{}: found {}, expected an object", origin, alias->section, inline_text(target));
    Value converted = alias->convert != nullptr ? alias->convert(value) : value;
    if (const Value* given = target.object()->find(alias->key); given != nullptr && *given != converted)
      throw usage_error("{}: {} and {}.{} are the same setting with two values, {} and {}", origin,
                        dotted(section, name), alias->section, alias->key, inline_text(value), inline_text(*given));
    (*target.object())[alias->key] = std::move(converted);
    log_info("{}: {} is now {}.{}", origin, dotted(section, name), alias->section, alias->key);
  }
}

}  // namespace vlmtune
