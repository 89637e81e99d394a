// The one table of recipe keys: name, meaning, who uses it, range. A visitor walks it to parse, print or document.
#pragma once
#include <limits>

#include "lib/recipe/recipe.h"

namespace vlmtune {

/// Bits of Field::used_by.
inline constexpr unsigned kByPretrain = 1, kByLora = 2, kByInfer = 4;
inline constexpr unsigned kByTraining = kByPretrain | kByLora, kByAll = kByTraining | kByInfer;

inline unsigned command_bit(Command command) { return 1U << static_cast<unsigned>(command); }

struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  /// "at least 1", "in [0, 1)"; empty without a bound.
  std::string describe() const;
  bool holds(double value) const;
};
inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();
inline constexpr Range kAnyRange{}, kPositive{0, kNoLimit, true}, kNotNegative{0}, kFromOne{1}, kShare{0, 1},
    kBelowOne{0, 1, false, true};

struct Field {
  std::string_view key;
  unsigned used_by = kByAll;
  std::string_view doc;
  Range range = kAnyRange;
  /// Accepted texts of a string, e.g. "none|full|every:N" (see matches_pattern); empty: any text.
  std::string_view pattern = {};
};

/// Whether `text` is one of the alternatives of `pattern`, separated by '|', where a capital N is a number from 1.
bool matches_pattern(std::string_view text, std::string_view pattern);
/// Whether std::regex can read `text` (ECMAScript).
bool is_regex(const std::string& text);

inline constexpr std::string_view kCheckpointingPattern =
    "none|full|selective|selective:attention|selective:mlp|every:N|first:N";

/// What compute_metrics of lib/evaluate knows, and retrieval, which looks at no answers.
inline constexpr std::string_view kMetricsPattern =
    "exact_match|anls|vqa_accuracy|bleu4|rouge_l|cider|pope_accuracy|pope_precision|pope_recall|pope_f1|pope_yes_ratio|"
    "retrieval";

template <typename Enum>
inline constexpr std::array<std::string_view, 0> kNames{};
template <>
inline constexpr std::array<std::string_view, 6> kNames<DataFormat>{"auto",     "llava",   "sharegpt",
                                                                    "messages", "qwen-vl", "webdataset"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<Truncation>{"drop", "cut_text", "error"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<QuantizationType>{"nf4", "int4", "int8"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<Precision>{"fp32", "bf16", "fp16"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<MemoryPlan>{"manual", "auto"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<OnOom>{"fail", "shrink_batch", "shard"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<OptimizerName>{"adamw", "adamw8bit", "lion"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<ScheduleType>{"constant", "linear", "cosine"};
template <>
inline constexpr std::array<std::string_view, 5> kNames<ParallelStrategy>{"auto", "ddp", "zero1", "zero2", "zero3"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<Retention>{"count", "loss-drop"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<Layout>{"model", "llava"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<KvCacheType>{"compute", "fp16", "int8", "int4"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<LogitsKept>{"last", "all"};

/// A visitor is called as v(Field, member) for every member in the order of the struct.
template <typename V>
void visit_fields(V& v, ModelRecipe& s) {
  v({"path", kByAll, "HF folder of a LLaVA checkpoint, or of a bare language model"}, s.path);
  v({"vision_tower", kByAll, "HF folder of the vision tower, needed with a bare language model"}, s.vision_tower);
  v({"adapter", kByInfer, "PEFT folder applied on top of the model"}, s.adapter);
  v({"projector", kByAll, "projector weights written by an earlier pretrain"}, s.projector);
  v({"mm_projector_type", kByAll, "null: the checkpoint's; mlp2x_gelu for a new projector", {}, "linear|mlpNx_gelu"},
    s.mm_projector_type);
  v({"vision_select_layer", kByAll,
     "vision layer whose output is used; null: the checkpoint's, for a new projector -2 (a ConvNeXt's last stage)"},
    s.vision_select_layer);
  v({"projector_width", kByAll,
     "width that a new projector's first layer gives features of any tower; null: the language model's", kFromOne},
    s.projector_width);
  v({"chat_template", kByAll, "null: the checkpoint's own"}, s.chat_template);
  v({"similarity_head", kByAll,
     "can tell how well a picture and a text fit: trained beside the projector, for retrieval"},
    s.similarity_head);
}

template <typename V>
void visit_fields(V& v, DataSource& s) {
  v({"path", kByTraining, "data file"}, s.path);
  v({"weight", kByTraining, "how often its rows are drawn in an epoch", kPositive}, s.weight);
}

template <typename V>
void visit_fields(V& v, DataRecipe& s) {
  v({"train", kByTraining, "training files, each a path or {\"path\", \"weight\"}"}, s.train);
  v({"validation", kByTraining, "files for the evaluation loss"}, s.validation);
  v({"image_folder", kByAll, "folder that image paths are relative to; null: the data file's"}, s.image_folder);
  v({"format", kByAll, "row layout; auto looks at the first row"}, s.format);
  v({"max_length", kByTraining, "longest row in tokens, image tokens included", kFromOne}, s.max_length);
  v({"truncation", kByTraining, "what happens to longer rows; an image is never cut"}, s.truncation);
  v({"group_by_modality_length", kByTraining, "batch rows of similar length, with and without images apart"},
    s.group_by_modality_length);
  v({"packing", kByTraining, "put several short rows into one sequence"}, s.packing);
  v({"num_workers", kByTraining, "threads that decode ahead; 0: in the training loop", {0, 256}}, s.num_workers);
  v({"prefetch", kByTraining, "host memory for samples decoded ahead, e.g. \"256MiB\""}, s.prefetch);
  v({"bad_sample_budget", kByTraining, "share of rows that may be unusable before the run stops", kShare},
    s.bad_sample_budget);
  v({"embedding_cache", kByTraining, "folder of a frozen vision tower's features, computed once"}, s.embedding_cache);
}

template <typename V>
void visit_fields(V& v, ImageRecipe& s) {
  v({"aspect_ratio",
     kByAll,
     "how pictures meet the tower's square; model: as the checkpoint says",
     {},
     "model|square|pad|anyres|anyres_max_N|dynamic"},
    s.aspect_ratio);
  v({"grid_pinpoints", kByAll, "[height, width] choices of anyres; null: the checkpoint's", kFromOne},
    s.grid_pinpoints);
  v({"min_pixels", kByAll, "enlarge smaller pictures", kFromOne}, s.min_pixels);
  v({"max_pixels", kByAll, "shrink larger pictures", kFromOne}, s.max_pixels);
  v({"video_max_pixels", kByAll, "shrink larger frames of videos", kFromOne}, s.video_max_pixels);
  v({"video_fps", kByAll, "frames of videos for each second, for positions in time", kPositive}, s.video_fps);
  v({"adaptive", kByAll, "resolution by image complexity"}, s.adaptive);
  v({"token_pruning", kByAll, "keep a share of the image tokens"}, s.token_pruning);
}

template <typename V>
void visit_fields(V& v, FreezeRecipe& s) {
  v({"vision_tower", kByTraining, "do not train the vision tower"}, s.vision_tower);
  v({"projector", kByTraining, "do not train the projector"}, s.projector);
  v({"language_model", kByTraining,
     "do not train the language model's own weights; false in pretrain is full fine-tuning"},
    s.language_model);
  v({"stages", kByTraining, "freezing that changes during the run"}, s.stages);
}

template <typename V>
void visit_fields(V& v, LoraRecipe& s) {
  v({"r", kByLora, "rank of the update", {1, 65536}}, s.r);
  v({"alpha", kByLora, "the update is scaled by alpha / r", kPositive}, s.alpha);
  v({"dropout", kByLora, "on the input of A", kBelowOne}, s.dropout);
  v({"target_modules", kByLora, "linear layers of the language model that are adapted"}, s.target_modules);
  v({"vision_target_modules", kByLora, "linear layers of the vision tower that are adapted"}, s.vision_target_modules);
  v({"bias", kByLora, "biases that train", {}, "none|all|lora_only"}, s.bias);
  v({"use_rslora", kByLora, "scale by alpha / sqrt(r)"}, s.use_rslora);
  v({"modules_to_save", kByLora, "modules trained and stored whole, e.g. lm_head"}, s.modules_to_save);
  v({"init_from", kByLora, "PEFT folder whose A and B start the training"}, s.init_from);
}

template <typename V>
void visit_fields(V& v, QuantizationRecipe& s) {
  v({"bits", kByAll, "bits of a frozen weight; 16: not quantised", {}, "4|8|16"}, s.bits);
  v({"type", kByAll, "number format of a quantised weight"}, s.type);
  v({"double_quant", kByAll, "quantise the block scales too"}, s.double_quant);
  v({"skip_modules", kByAll, "modules that stay whole, by any part of their name"}, s.skip_modules);
}

template <typename V>
void visit_fields(V& v, PrecisionRecipe& s) {
  v({"compute", kByAll, "number format of matrix products and activations"}, s.compute);
  v({"parameters", kByAll, "number format of the weights in memory"}, s.parameters);
  v({"trained", kByTraining, "number format of trained weights, bf16 with stochastic rounding; adapters are fp32"},
    s.trained);
  v({"norms", kByAll, "number format of norms, softmax and loss"}, s.norms);
  v({"loss_scale", kByTraining, "of fp16: \"dynamic\" or a constant", kPositive}, s.loss_scale);
}

template <typename V>
void visit_fields(V& v, OffloadRecipe& s) {
  v({"optimizer", kByTraining, "where optimizer state lives", {}, "none|cpu"}, s.optimizer);
  v({"gradients", kByTraining, "where gradients live", {}, "none|cpu"}, s.gradients);
  v({"parameters", kByAll, "where weights live", {}, "none|cpu|disk"}, s.parameters);
  v({"activations", kByTraining, "where saved activations live", {}, "none|cpu"}, s.activations);
}

template <typename V>
void visit_fields(V& v, MemoryRecipe& s) {
  v({"budget", kByAll, "device memory that the run may use, e.g. \"8GB\""}, s.budget);
  v({"plan", kByAll, "auto: choose the techniques that fit the budget"}, s.plan);
  v({"checkpointing", kByTraining, "language blocks recomputed in backward", {}, kCheckpointingPattern},
    s.checkpointing);
  v({"vision_checkpointing", kByTraining, "the same for a trained vision tower", {}, kCheckpointingPattern},
    s.vision_checkpointing);
  v({"loss_chunk_tokens", kByTraining, "tokens whose logits exist at a time; 0: all", kNotNegative},
    s.loss_chunk_tokens);
  v({"optimizer_in_backward", kByTraining, "update a tensor, and free its gradient, as soon as that is there"},
    s.optimizer_in_backward);
  v({"attention", kByAll, "attention algorithm", {}, "auto|math|chunked:N|window:N"}, s.attention);
  v({"offload", kByAll, "what leaves the device's memory"}, s.offload);
  v({"on_oom", kByAll, "what to do when memory runs out"}, s.on_oom);
}

template <typename V>
void visit_fields(V& v, OptimizerRecipe& s) {
  v({"name", kByTraining, "update rule"}, s.name);
  v({"learning_rate", kByTraining, "peak learning rate", kNotNegative}, s.learning_rate);
  v({"projector_learning_rate", kByTraining, "null: learning_rate", kNotNegative}, s.projector_learning_rate);
  v({"vision_learning_rate", kByTraining, "null: learning_rate", kNotNegative}, s.vision_learning_rate);
  v({"betas", kByTraining, "decay of the moments", kBelowOne}, s.betas);
  v({"eps", kByTraining, "added to the denominator", kPositive}, s.eps);
  v({"weight_decay", kByTraining, "not on biases and norms", kNotNegative}, s.weight_decay);
  v({"max_grad_norm", kByTraining, "clip the gradient's norm; 0: never", kNotNegative}, s.max_grad_norm);
}

template <typename V>
void visit_fields(V& v, AccumulationStage& s) {
  v({"until_step", kByTraining, "last optimizer step of the stage; null: to the end", kFromOne}, s.until_step);
  v({"steps", kByTraining, "micro-batches per optimizer step", kFromOne}, s.steps);
}

template <typename V>
void visit_fields(V& v, ScheduleRecipe& s) {
  v({"type", kByTraining, "shape after the warm-up"}, s.type);
  v({"warmup_steps", kByTraining, "steps of linear warm-up; replaces warmup_ratio", kNotNegative}, s.warmup_steps);
  v({"warmup_ratio", kByTraining, "warm-up as a share of all steps", kBelowOne}, s.warmup_ratio);
  v({"min_lr_ratio", kByTraining, "the rate never falls below this share of its peak", kShare}, s.min_lr_ratio);
  v({"accumulation_stages", kByTraining, "gradient accumulation that changes during the run"}, s.accumulation_stages);
}

template <typename V>
void visit_fields(V& v, TrainRecipe& s) {
  v({"num_train_epochs", kByTraining, "passes over the data; may be a fraction", kPositive}, s.num_train_epochs);
  v({"max_steps", kByTraining, "optimizer steps; replaces num_train_epochs", kFromOne}, s.max_steps);
  v({"per_device_batch_size", kByTraining, "rows of a micro-batch", kFromOne}, s.per_device_batch_size);
  v({"max_tokens_per_batch", kByTraining,
     "a micro-batch takes rows up to so many tokens, padding included; replaces per_device_batch_size in training",
     kFromOne},
    s.max_tokens_per_batch);
  v({"gradient_accumulation_steps", kByTraining, "micro-batches per optimizer step", kFromOne},
    s.gradient_accumulation_steps);
  v({"global_batch_size", kByTraining, "rows per optimizer step; derives gradient_accumulation_steps", kFromOne},
    s.global_batch_size);
  v({"logging_steps", kByTraining, "steps between progress lines where no terminal shows a bar", kFromOne},
    s.logging_steps);
  v({"save_steps", kByTraining, "steps between checkpoints; 0: none before the end", kNotNegative}, s.save_steps);
  v({"eval_steps", kByTraining, "steps between evaluations; 0: at the end only", kNotNegative}, s.eval_steps);
  v({"similarity_weight", kByTraining, "of the contrastive loss of model.similarity_head", kPositive},
    s.similarity_weight);
  v({"eval_metrics", kByTraining, "scores of answers to the validation rows, beside the loss", {}, kMetricsPattern},
    s.eval_metrics);
  v({"seed", kByTraining, "of shuffling, dropout and new weights", kNotNegative}, s.seed);
  v({"shuffle", kByTraining, "draw rows in random order"}, s.shuffle);
  v({"deterministic", kByTraining, "same bits in every run"}, s.deterministic);
}

template <typename V>
void visit_fields(V& v, ParallelRecipe& s) {
  v({"strategy", kByAll, "how devices share the work"}, s.strategy);
  v({"tensor", kByAll, "devices that share each matrix", kFromOne}, s.tensor);
  v({"pipeline", kByAll, "devices that share the layers", kFromOne}, s.pipeline);
  v({"sequence", kByAll, "devices that share a sequence", kFromOne}, s.sequence);
  v({"expert", kByAll, "devices that share the experts", kFromOne}, s.expert);
}

template <typename V>
void visit_fields(V& v, Hardware& s) {
  v({"name", kByAll, "shown in reports"}, s.name);
  v({"device", kByAll, "backend", {}, "cpu|cuda|npu"}, s.device);
  v({"capacity_bytes", kByAll, "device memory; null: what the machine has", kFromOne}, s.capacity_bytes);
  v({"memory_bandwidth_bytes_per_s", kByAll, "of the device's memory", kPositive}, s.memory_bandwidth_bytes_per_s);
  v({"flops", kByAll, "peak operations per second by number format", kPositive}, s.flops);
  v({"link_bytes_per_s", kByAll, "between devices", kPositive}, s.link_bytes_per_s);
  v({"host_memory_bandwidth_bytes_per_s", kByAll, "of the host's own memory", kPositive},
    s.host_memory_bandwidth_bytes_per_s);
  v({"host_link_bytes_per_s", kByAll, "between device and host", kPositive}, s.host_link_bytes_per_s);
  v({"context_bytes", kByAll, "taken by the driver before the first tensor", kNotNegative}, s.context_bytes);
  v({"cublas_workspace_bytes", kByAll, "taken by the matrix library", kNotNegative}, s.cublas_workspace_bytes);
  v({"arch", kByAll, "architecture, e.g. sm_80"}, s.arch);
}

template <typename V>
void visit_fields(V& v, OutputRecipe& s) {
  v({"dir", kByAll, "run directory"}, s.dir);
  v({"save_total_limit", kByTraining, "checkpoints kept in all, the newest and the best among them; 0: every one",
     kNotNegative},
    s.save_total_limit);
  v({"keep_best", kByTraining, "best checkpoints that always stay (lowest evaluation loss, else training loss)",
     kNotNegative},
    s.keep_best);
  v({"retention", kByTraining, "count, or loss-drop: older checkpoints go once the loss has fallen by 2.5 %"},
    s.retention);
  v({"merge_adapter", kByLora, "also write OUT/merged, a full model"}, s.merge_adapter);
  v({"layout", kByTraining,
     "model: as the model's own folder; llava: as LLaVA's scripts, from a language model and a tower"},
    s.layout);
  v({"tensorboard", kByTraining, "write TensorBoard events"}, s.tensorboard);
  v({"prometheus", kByAll, "text file of current figures"}, s.prometheus);
}

template <typename V>
void visit_fields(V& v, GenerationRecipe& s) {
  v({"max_new_tokens", kByAll, "longest answer", kFromOne}, s.max_new_tokens);
  v({"temperature", kByAll, "0: always the likeliest token", kNotNegative}, s.temperature);
  v({"top_p", kByAll, "sample from the likeliest tokens of this total probability", {0, 1, true}}, s.top_p);
  v({"top_k", kByAll, "sample from so many tokens; 0: all", kNotNegative}, s.top_k);
  v({"repetition_penalty", kByAll, "1: none", kPositive}, s.repetition_penalty);
  v({"seed", kByAll, "of sampling", kNotNegative}, s.seed);
  v({"stop", kByAll, "texts that end an answer"}, s.stop);
  v({"batch_size", kByAll, "rows decoded together", kFromOne}, s.batch_size);
  v({"prompt_tokens", kByInfer, "length of profile-memory's synthetic prompt", kFromOne}, s.prompt_tokens);
  v({"kv_cache", kByInfer, "number format of cached keys and values; compute: as precision.compute"}, s.kv_cache);
  v({"window", kByInfer, "tokens that the cache holds; null: all", kFromOne}, s.window);
  v({"logits", kByAll, "positions of the prompt whose logits are computed"}, s.logits);
}

template <typename V>
void visit_fields(V& v, Recipe& s) {
  v({"model", kByAll, "checkpoints to start from"}, s.model);
  v({"data", kByAll, "rows and pictures"}, s.data);
  v({"image", kByAll, "from picture to pixels"}, s.image);
  v({"freeze", kByTraining, "parts that do not train"}, s.freeze);
  v({"lora", kByLora, "low-rank adapters"}, s.lora);
  v({"quantization", kByAll, "weights in few bits"}, s.quantization);
  v({"precision", kByAll, "number formats"}, s.precision);
  v({"memory", kByAll, "memory against time"}, s.memory);
  v({"optimizer", kByTraining, "update rule and rates"}, s.optimizer);
  v({"schedule", kByTraining, "learning rate over time"}, s.schedule);
  v({"train", kByTraining, "length, batch and rhythm of the run"}, s.train);
  v({"parallel", kByAll, "several devices"}, s.parallel);
  v({"hardware", kByAll, "the device: a name under recipes/hardware, or an object"}, s.hardware);
  v({"output", kByAll, "run directory"}, s.output);
  v({"generation", kByAll, "how answers are made; in training those that train.eval_metrics looks at"}, s.generation);
}

}  // namespace vlmtune
