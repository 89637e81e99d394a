#include "lib/profile/dry_run.h"

#include <algorithm>

#include "kernels/composed.h"
#include "kernels/device.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/data/packing.h"
#include "lib/generate/generate.h"
#include "lib/memory/scope.h"
#include "lib/pipeline/assemble.h"
#include "lib/pipeline/embedding.h"
#include "lib/pipeline/model_files.h"
#include "lib/pipeline/options.h"
#include "lib/profile/blank_rows.h"
#include "lib/profile/host_rates.h"
#include "lib/train/trainables.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kDrySteps = 2;  // optimizer state appears at the end of the first

torch::DeviceType device_type(const Hardware& hardware) {
  return hardware.device == "cuda" ? torch::kCUDA : hardware.device == "npu" ? torch::kPrivateUse1 : torch::kCPU;
}

MemoryAccounts new_accounts(torch::DeviceType type) {
  if (type == torch::kCPU) {
    const auto ledger = std::make_shared<MemoryLedger>();
    return {ledger, ledger};
  }
  CachingAllocatorOptions options;
  if (type == torch::kPrivateUse1) options.padding = 32;  // torch_npu's NPUCachingAllocator
  return {std::make_shared<MemoryLedger>(options), std::make_shared<MemoryLedger>()};
}

DeviceRates rates_of(const Hardware& hardware) {
  if (hardware.device == "cpu" && hardware.flops.empty()) return host_rates();
  return {hardware.flops, hardware.memory_bandwidth_bytes_per_s.value_or(0), hardware.host_link_bytes_per_s.value_or(0),
          hardware.host_memory_bandwidth_bytes_per_s.value_or(0)};
}

/// What filling the embedding cache takes, before the model is there.
void run_tower(const Recipe& recipe, const InputParts& inputs) {
  const PhaseScope phase("embedding cache");
  const auto tower = assemble_tower(recipe, inputs.config, torch::kMeta);
  picture_features(*tower.model, blank_picture(inputs, largest_picture(inputs)),
                   to_scalar_type(recipe.precision.compute));
}

/// What the loader holds of steps of such rows.
int64_t loader_bytes(const Recipe& recipe, const std::vector<Example>& rows) {
  if (recipe.data.num_workers == 0) return 0;
  int64_t step = 0;
  for (const auto& row : rows) step += row.num_bytes();
  const auto options = loader_options(recipe);
  return std::min(options.prefetch_bytes, kStepsAhead * options.accumulation(0) * step);
}

struct TrainingTrace {
  StepTime time;  // of one step
  int64_t loader_bytes;
};

/// Answers a batch of prompts of `length` tokens to the last token.
void run_answers(const Recipe& recipe, const InputParts& inputs, const ModelParts& parts, int64_t length,
                 const RowContents& contents, std::optional<torch::ScalarType> features_type, KvCache::Growth growth) {
  const auto& g = recipe.generation;
  const auto& config = inputs.config;
  const std::vector<Example> rows(static_cast<size_t>(g.batch_size),
                                  longest_row(inputs, length, contents, features_type));
  const auto batch = make_batch(rows, inputs.pad_id, PaddingSide::kLeft);
  GenerationOptions options;
  options.compute_type = to_scalar_type(recipe.precision.compute);
  options.vocab_limit = config.text.vocab_size;
  options.all_logits = g.logits == LogitsKept::kAll;
  KvCache cache(config.text.num_hidden_layers, growth);
  cache.reserve(length + g.max_new_tokens);
  options.max_new_tokens = std::min<int64_t>(2, g.max_new_tokens);
  generate(*parts.model, {batch.ids, batch.images, batch.left_padding}, cache, options, {});
  // Every token between costs what its neighbours cost: on to the last one.
  const int64_t behind = length + g.max_new_tokens - 2 - cache.length();
  if (behind <= 0) return;
  cache.advance(behind);
  options.max_new_tokens = 1;
  const std::vector<Example> last(rows.size(), longest_row(inputs, 1, {}));
  generate(*parts.model, {make_batch(last, inputs.pad_id, PaddingSide::kLeft).ids, {}, {}}, cache, options, {});
}

TrainingTrace run_training(const Recipe& recipe, Command command, const InputParts& inputs, const ModelParts& parts,
                           RooflineRecorder& roofline) {
  const auto options = step_options(recipe, inputs);
  const auto optimizer = make_optimizer(recipe, *parts.model);
  // Rows that share a budget of tokens: as many of the longest as fit, stretched to what is left.
  const auto budget = recipe.train.max_tokens_per_batch;
  const int64_t num_rows = budget ? std::max<int64_t>(1, *budget / padded_length(recipe.data.max_length))
                                  : recipe.train.per_device_batch_size;
  const int64_t row_tokens =
      budget ? std::max(padded_length(recipe.data.max_length), *budget / num_rows / kLengthMultiple * kLengthMultiple)
             : recipe.data.max_length;
  const auto features_type = recipe.data.embedding_cache ? std::optional(options.compute_type) : std::nullopt;
  const auto sample = fullest_row(recipe, inputs);
  const auto contents =
      recipe.data.packing || budget ? fullest_packed_row(recipe, command, inputs, row_tokens, sample) : sample;
  auto row = longest_row(inputs, row_tokens, contents, features_type);
  if (recipe.data.packing) row.sample_starts.push_back(recipe.data.max_length / 2);
  const std::vector<Example> rows(static_cast<size_t>(num_rows), row);
  // From the second micro-batch on, each takes what the one before took, in memory and in time.
  const int64_t micro_batches = recipe.train.gradient_accumulation_steps, run = std::min<int64_t>(2, micro_batches);
  std::vector<StepTime> begun;
  const MicroBatches micro{run, 1, [&](int64_t) {
                             begun.push_back(roofline.time());
                             return make_batch(rows, inputs.pad_id, PaddingSide::kRight);
                           }};
  for (int64_t step = 0; step < kDrySteps; ++step) {
    roofline.reset();
    begun.clear();
    train_step(*parts.model, micro, *optimizer, step, 1, recipe.optimizer.max_grad_norm, options);
    zero_gradients(optimizer->tensors());
  }
  auto time = roofline.time();
  if (!recipe.train.eval_metrics.empty()) {
    const PhaseScope phase("evaluation");
    run_answers(recipe, inputs, parts, recipe.data.max_length, sample, features_type, KvCache::Growth::kAhead);
  }
  { const PhaseScope phase("save"); }  // files are written from what is there
  if (micro_batches > run) time += (begun[1] - begun[0]) * static_cast<double>(micro_batches - run);
  return {time, loader_bytes(recipe, rows)};
}

void run_inference(const Recipe& recipe, const InputParts& inputs, const ModelParts& parts, KvCache::Growth growth) {
  constexpr int64_t kDefaultPrompt = 64;
  const auto& config = inputs.config;
  const RowContents picture{.images = config.vision ? 1 : 0};
  const int64_t image_tokens = config.vision ? config.vision->image_tokens(largest_picture(inputs)) : 0;
  const int64_t length =
      recipe.generation.prompt_tokens.value_or(kDefaultPrompt + image_tokens);  // a short one has no picture
  run_answers(recipe, inputs, parts, length, picture, std::nullopt, growth);
}

MemoryReport new_report(const Recipe& recipe, Command command, int64_t overhead_bytes) {
  MemoryReport report;
  report.command = command_name(command);
  report.hardware = recipe.hardware.name;
  report.capacity_bytes = memory_capacity(recipe);
  report.figures = memory_figures(memory_accounts(), overhead_bytes);
  return report;
}

/// Puts the accounts and the traced device of the process back.
class DryAccounts {
 public:
  DryAccounts(torch::DeviceType type, bool like_transformers) : before_(memory_accounts()) {
    set_memory_accounts(new_accounts(type));
    kernels::set_traced_device(type);
    kernels::set_composed(like_transformers);
  }
  ~DryAccounts() {
    set_memory_accounts(before_);
    kernels::set_traced_device(torch::kCPU);
    kernels::set_composed(false);
  }
  DryAccounts(const DryAccounts&) = delete;
  DryAccounts& operator=(const DryAccounts&) = delete;

 private:
  MemoryAccounts before_;
};

}  // namespace

std::optional<int64_t> memory_capacity(const Recipe& recipe) {
  auto capacity = recipe.hardware.capacity_bytes;
  if (recipe.memory.budget) {
    const int64_t budget = parse_bytes(*recipe.memory.budget).value();  // checked when the recipe was read
    capacity = std::min(budget, capacity.value_or(budget));
  }
  return capacity;
}

DryRun dry_run(const Recipe& recipe, Command command, const DryRunOptions& options) {
  const auto type = device_type(recipe.hardware);
  const DryAccounts accounts(type, options.like_transformers);
  const auto ledger = memory_accounts().device;
  if (options.record_timeline) ledger->record_timeline();
  InputParts inputs;
  inputs.config = model_config(recipe);
  if (inputs.config.vision && inputs.config.image_token_id < 0)
    inputs.config.image_token_id = inputs.config.text.vocab_size;
  if (inputs.config.vision) choose_processors(recipe, inputs, true);
  const auto rates = rates_of(recipe.hardware);
  RooflineRecorder roofline(rates);
  DryRun result;
  {
    const auto trained_type =
        options.like_transformers ? std::optional(to_scalar_type(recipe.precision.parameters)) : std::nullopt;
    if (command != Command::kInfer && inputs.config.vision && recipe.data.embedding_cache) run_tower(recipe, inputs);
    const auto parts = assemble_model(recipe, inputs.config, command, torch::kMeta, trained_type);
    // cuBLAS takes its work space from the allocator at the first product and keeps it.
    const auto workspace =
        torch::empty({recipe.hardware.cublas_workspace_bytes}, torch::dtype(torch::kByte).device(torch::kMeta));
    roofline.reset();
    TrainingTrace trace{};
    if (command == Command::kInfer) {
      run_inference(recipe, inputs, parts,
                    options.like_transformers ? KvCache::Growth::kExact : KvCache::Growth::kAhead);
      trace.time = roofline.time();
    } else {
      trace = run_training(recipe, command, inputs, parts, roofline);
    }
    result.report = new_report(recipe, command, options.context_bytes.value_or(recipe.hardware.context_bytes));
    result.report.figures.loader_bytes = trace.loader_bytes;
    if (rates.bytes > 0) result.report.time = trace.time;
  }
  result.ledger = ledger;
  return result;
}

Recipe with_known_models(const Recipe& recipe, const fs::path& recipe_file) {
  Recipe known = recipe;
  const auto look_up = [&](std::string& path) {
    if (fs::exists(path)) return;
    for (const auto& dir : default_hardware_dirs(recipe_file)) {
      const auto folder = dir.parent_path() / "models" / fs::path(path).filename();
      if (!fs::exists(folder / "config.json")) continue;
      log_info("{} is not there: {} is read instead", path, (folder / "config.json").string());
      path = folder.string();
      return;
    }
  };
  look_up(known.model.path);
  if (known.model.vision_tower) look_up(*known.model.vision_tower);
  if (known.model.projector && !fs::exists(*known.model.projector)) known.model.projector.reset();
  return known;
}

MemoryReport measured_memory(const Recipe& recipe, Command command) { return new_report(recipe, command, 0); }

}  // namespace vlmtune
