// The recipe of a run as plain structs: same sections and names as in the JSON file (README, "Recipe").
// fields.h holds the one table of keys, ranges and descriptions behind parsing, printing and the reference.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

/// Which subcommand a recipe is read for: defaults and used keys depend on it. profile-memory reads a recipe as the
/// subcommand that it profiles.
enum class Command { kPretrain, kLoraFinetune, kInfer };

/// "pretrain", "lora-finetune" or "infer".
std::string_view command_name(Command command);

enum class DataFormat { kAuto, kLlava, kSharegpt, kMessages, kQwenVl, kWebdataset };
enum class Truncation { kDrop, kCutText, kError };
enum class QuantizationType { kNf4, kInt4, kInt8 };
enum class Precision { kFp32, kBf16, kFp16 };
enum class MemoryPlan { kManual, kAuto };
enum class OnOom { kFail, kShrinkBatch, kShard };
enum class OptimizerName { kAdamw, kAdamw8bit, kLion };
enum class ScheduleType { kConstant, kLinear, kCosine };
enum class ParallelStrategy { kAuto, kDdp, kZero1, kZero2, kZero3 };
enum class Retention { kCount, kLossDrop };
enum class Layout { kModel, kLlava };
enum class KvCacheType { kCompute, kFp16, kInt8, kInt4 };
enum class LogitsKept { kLast, kAll };

/// The name of an enumerator in the recipe, e.g. Precision::kBf16 -> "bf16"; defined for every enumeration above.
template <typename Enum>
std::string_view recipe_name(Enum value);

/// A setting whose shape is fixed together with its feature; until then only its absence is accepted.
struct Reserved {
  bool operator==(const Reserved&) const = default;
};

struct ModelRecipe {
  std::string path;                              // a HF folder: a LLaVA checkpoint, or a bare language model
  std::optional<std::string> vision_tower;       // needed with a bare language model
  std::optional<std::string> adapter;            // PEFT folder, applied on top
  std::optional<std::string> projector;          // projector weights of an earlier pretrain
  std::optional<std::string> mm_projector_type;  // null: the checkpoint's; mlp2x_gelu for a new projector
  std::optional<int64_t> vision_select_layer;    // null: the checkpoint's; the tower's usual one for a new projector
  std::optional<int64_t> projector_width;        // between the layers of a new projector; null: the language model's
  std::optional<std::string> chat_template;      // null: the checkpoint's
  bool similarity_head = false;                  // trained beside the projector, read by retrieval metrics
  bool operator==(const ModelRecipe&) const = default;
};

/// One training file and how often its rows are drawn in an epoch (2 = twice, 0.5 = every other row).
struct DataSource {
  std::string path;
  double weight = 1;
  bool operator==(const DataSource&) const = default;
};

struct DataRecipe {
  std::vector<DataSource> train;
  std::vector<std::string> validation;
  std::optional<std::string> image_folder;
  DataFormat format = DataFormat::kAuto;
  int64_t max_length = 2048;  // tokens of a row, image tokens included
  Truncation truncation = Truncation::kDrop;
  bool group_by_modality_length = true;
  bool packing = false;
  int64_t num_workers = 2;
  std::string prefetch = "256MiB";  // a size that parse_bytes() reads
  double bad_sample_budget = 0.01;  // share of rows that may be unusable before the run stops
  std::optional<std::string> embedding_cache;
  bool operator==(const DataRecipe&) const = default;
};

struct ImageRecipe {
  std::string aspect_ratio = "model";                                 // model|square|pad|anyres|anyres_max_N|dynamic
  std::optional<std::vector<std::array<int64_t, 2>>> grid_pinpoints;  // [height, width] in pixels
  std::optional<int64_t> min_pixels, max_pixels;
  std::optional<int64_t> video_max_pixels;  // of a frame
  double video_fps = 2;                     // frames of videos for each second
  Reserved adaptive;
  Reserved token_pruning;
  bool operator==(const ImageRecipe&) const = default;
};

struct FreezeRecipe {
  bool vision_tower = true;
  bool projector = false;
  bool language_model = true;
  Reserved stages;
  bool operator==(const FreezeRecipe&) const = default;
};

/// Which linear layers of the language model carry LoRA: every one ("all-linear"), those whose full name matches a
/// regex ("regex:..."), or those whose name ends with an entry of a list.
struct TargetModules {
  enum class Kind { kList, kAllLinear, kRegex };
  Kind kind = Kind::kList;
  std::vector<std::string> names;  // kList
  std::string regex;               // kRegex, without the "regex:" prefix
  bool operator==(const TargetModules&) const = default;
};

struct LoraRecipe {
  int64_t r = 8;
  double alpha = 16;
  double dropout = 0.1;
  TargetModules target_modules{TargetModules::Kind::kList, {"q_proj", "v_proj"}, {}};
  std::vector<std::string> vision_target_modules;  // none: LoRA never touches the vision tower unasked
  std::string bias = "none";
  bool use_rslora = false;
  std::vector<std::string> modules_to_save;
  std::optional<std::string> init_from;  // a PEFT folder whose A and B start the training
  bool operator==(const LoraRecipe&) const = default;
};

struct QuantizationRecipe {
  int64_t bits = 16;  // 4|8|16; 16 = not quantised
  QuantizationType type = QuantizationType::kNf4;
  bool double_quant = true;
  std::vector<std::string> skip_modules{"vision_tower", "multi_modal_projector", "lm_head"};
  bool operator==(const QuantizationRecipe&) const = default;
};

/// "dynamic", or a constant factor on the loss before backward (fp16 only).
struct LossScale {
  bool dynamic = true;
  double value = 1;  // the factor when not dynamic
  bool operator==(const LossScale&) const = default;
};

struct PrecisionRecipe {
  Precision compute = Precision::kBf16;
  Precision parameters = Precision::kBf16;  // storage of the weights in memory
  Precision trained = Precision::kFp32;     // storage of trained weights; adapters are fp32
  Precision norms = Precision::kFp32;
  LossScale loss_scale;
  bool operator==(const PrecisionRecipe&) const = default;
};

struct OffloadRecipe {
  std::string optimizer = "none";    // none|cpu
  std::string gradients = "none";    // none|cpu
  std::string parameters = "none";   // none|cpu|disk
  std::string activations = "none";  // none|cpu
  bool operator==(const OffloadRecipe&) const = default;
};

struct MemoryRecipe {
  std::optional<std::string> budget;  // "8GB"; a size that parse_bytes() reads
  MemoryPlan plan = MemoryPlan::kManual;
  std::string checkpointing = "full";         // of the language model's blocks, see RecomputePolicy
  std::string vision_checkpointing = "full";  // the same for the vision tower; no effect on a frozen one
  int64_t loss_chunk_tokens = 1024;           // 0: logits of all tokens at once
  bool optimizer_in_backward = false;         // update each tensor when its gradient is there
  std::string attention = "auto";             // auto|math|chunked:N|window:N
  OffloadRecipe offload;
  OnOom on_oom = OnOom::kFail;
  bool operator==(const MemoryRecipe&) const = default;
};

struct OptimizerRecipe {
  OptimizerName name = OptimizerName::kAdamw;
  double learning_rate = 2e-4;
  std::optional<double> projector_learning_rate;  // null: learning_rate
  std::optional<double> vision_learning_rate;     // null: learning_rate
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double max_grad_norm = 1;  // 0: no clipping
  bool operator==(const OptimizerRecipe&) const = default;
};

/// Accumulate `steps` micro-batches per optimizer step until optimizer step `until_step` (the last stage has none).
struct AccumulationStage {
  std::optional<int64_t> until_step;
  int64_t steps = 1;
  bool operator==(const AccumulationStage&) const = default;
};

struct ScheduleRecipe {
  ScheduleType type = ScheduleType::kCosine;
  std::optional<int64_t> warmup_steps;  // at most one of the two is above 0
  double warmup_ratio = 0.03;
  double min_lr_ratio = 0;
  std::optional<std::vector<AccumulationStage>> accumulation_stages;
  bool operator==(const ScheduleRecipe&) const = default;
};

struct TrainRecipe {
  double num_train_epochs = 1;
  std::optional<int64_t> max_steps;  // optimizer steps; wins over num_train_epochs
  int64_t per_device_batch_size = 1;
  std::optional<int64_t> max_tokens_per_batch;  // of a micro-batch, padding included; replaces per_device_batch_size
  int64_t gradient_accumulation_steps = 1;      // already derived from global_batch_size, or the largest of the stages
  std::optional<int64_t> global_batch_size;
  int64_t logging_steps = 1;
  int64_t save_steps = 500;               // 0: only at the end
  int64_t eval_steps = 0;                 // 0: only at the end, when there is validation data
  double similarity_weight = 0.1;         // of the contrastive loss, with model.similarity_head
  std::vector<std::string> eval_metrics;  // of answers to the validation rows; none: the loss alone
  int64_t seed = 42;
  bool shuffle = true;
  bool deterministic = true;
  bool operator==(const TrainRecipe&) const = default;
};

struct ParallelRecipe {
  ParallelStrategy strategy = ParallelStrategy::kAuto;
  int64_t tensor = 1, pipeline = 1, sequence = 1, expert = 1;
  bool operator==(const ParallelRecipe&) const = default;
};

/// A device as data: recipes/hardware/<name>.json, or an inline object. Unknown figures are null.
struct Hardware {
  std::string name = "cpu";
  std::string device = "cpu";             // cpu|cuda|npu
  std::optional<int64_t> capacity_bytes;  // null: what the machine has
  std::optional<double> memory_bandwidth_bytes_per_s;
  std::map<std::string, double> flops;     // peak operations per second by precision: "bf16" -> 3.12e14
  std::optional<double> link_bytes_per_s;  // to other devices
  std::optional<double> host_memory_bandwidth_bytes_per_s;
  std::optional<double> host_link_bytes_per_s;  // to the host's memory
  int64_t context_bytes = 0;                    // taken by the driver before the first tensor
  int64_t cublas_workspace_bytes = 0;
  std::optional<std::string> arch;  // "sm_80"
  bool operator==(const Hardware&) const = default;
};

struct OutputRecipe {
  std::optional<std::string> dir;
  int64_t save_total_limit = 3;  // checkpoints in all, best and newest first; 0: every one
  int64_t keep_best = 1;
  Retention retention = Retention::kCount;
  bool merge_adapter = false;  // also write OUT/merged, a full model
  Layout layout = Layout::kModel;
  bool tensorboard = false;
  std::optional<std::string> prometheus;
  bool operator==(const OutputRecipe&) const = default;
};

struct GenerationRecipe {
  int64_t max_new_tokens = 512;
  double temperature = 0;  // 0: greedy
  double top_p = 1;
  int64_t top_k = 0;  // 0: off
  double repetition_penalty = 1;
  int64_t seed = 42;
  std::vector<std::string> stop;
  int64_t batch_size = 1;                // rows decoded together
  std::optional<int64_t> prompt_tokens;  // synthetic prompt of profile-memory
  KvCacheType kv_cache = KvCacheType::kCompute;
  std::optional<int64_t> window;
  LogitsKept logits = LogitsKept::kLast;
  bool operator==(const GenerationRecipe&) const = default;
};

struct Recipe {
  ModelRecipe model;
  DataRecipe data;
  ImageRecipe image;
  FreezeRecipe freeze;
  std::optional<LoraRecipe> lora;  // set for lora-finetune, null for pretrain and infer
  QuantizationRecipe quantization;
  PrecisionRecipe precision;
  MemoryRecipe memory;
  OptimizerRecipe optimizer;
  ScheduleRecipe schedule;
  TrainRecipe train;
  ParallelRecipe parallel;
  Hardware hardware;
  OutputRecipe output;
  GenerationRecipe generation;
  bool operator==(const Recipe&) const = default;
};

struct LoadOptions {
  /// Folders that may hold <hardware name>.json, looked in after the default ones (see default_hardware_dirs()).
  std::vector<std::filesystem::path> hardware_dirs;
  /// Insist on what a run needs (model.path; for training data.train and output.dir too). A dry profile does not.
  bool require_inputs = true;
};

/// Reads `file` (JSON with comments; empty: no file), what it extends, and then `sets` ("a.b=value", value as JSON or
/// bare text), each over the one before, over default_recipe(command). Relative paths in it stay as given.
/// Errors: usage_error naming the file or --set, the JSON pointer, what was found and what was expected.
/// Aliases are logged with their new name, keys that `command` does not use as a warning.
Recipe load_recipe(const std::filesystem::path& file, Command command, const std::vector<std::string>& sets,
                   const LoadOptions& options = {});

/// The subcommand that a recipe is for, by what it names: "lora", else "data.train" (pretrain), else infer.
/// Errors: usage_error.
Command guess_command(const std::filesystem::path& file, const std::vector<std::string>& sets);

/// JSON pointers of the keys that a recipe's files and `sets` name, sections too. Errors: usage_error.
std::set<std::string> named_settings(const std::filesystem::path& file, const std::vector<std::string>& sets);

/// The published hyper-parameters of LLaVA for this subcommand. Full fine-tuning is pretrain with
/// freeze.language_model false: load_recipe then starts from learning rate 2e-5 instead of 1e-3.
Recipe default_recipe(Command command);

/// The whole recipe as JSON: every key with its value; load_recipe reads it back to an equal recipe.
std::string print_recipe(const Recipe& recipe);

/// What has to be merged into `from` to make it `to`, as JSON on one line.
std::string recipe_patch(const Recipe& from, const Recipe& to);

/// A table of every key with type, default, range and description (for --help and the docs), as Markdown.
std::string recipe_reference();

/// Where hardware/<name>.json is looked for: beside `recipe_file`, recipes/hardware under the working directory,
/// $VLMTUNE_DATA/recipes/hardware, and ../share/vlmtune/recipes/hardware beside the executable.
std::vector<std::filesystem::path> default_hardware_dirs(const std::filesystem::path& recipe_file);

/// Every device of `dirs`, each name once. Errors: usage_error for a broken file.
std::vector<Hardware> known_hardware(const std::vector<std::filesystem::path>& dirs);

/// Reads <name>.json from the first of `dirs` that holds it; "cpu" is known without a file.
/// Errors: usage_error that lists the names found.
Hardware load_hardware(std::string_view name, const std::vector<std::filesystem::path>& dirs);

}  // namespace vlmtune
