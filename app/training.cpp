// pretrain and lora-finetune: recipe, data, model, then the loop. What differs between the two is in the recipe.
#include <cmath>
#include <cstdio>

#include "app/commands.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/errors.h"
#include "lib/base/interrupt.h"
#include "lib/base/log.h"
#include "lib/data/check.h"
#include "lib/memory/monitor.h"
#include "lib/memory/resident.h"
#include "lib/memory/scope.h"
#include "lib/pipeline/assemble.h"
#include "lib/pipeline/device.h"
#include "lib/pipeline/embedding.h"
#include "lib/pipeline/evaluation.h"
#include "lib/pipeline/options.h"
#include "lib/pipeline/outputs.h"
#include "lib/profile/planner.h"
#include "lib/runs/manifest.h"
#include "lib/runs/metrics.h"
#include "lib/runs/report.h"
#include "lib/runs/retention.h"
#include "lib/runs/run_directory.h"
#include "lib/train/run_state.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxSkippedSteps = 20;

int64_t count_total_steps(const Recipe& recipe, const BatchLoader& loader) {
  if (recipe.train.max_steps) return *recipe.train.max_steps;
  const double epochs = recipe.train.num_train_epochs, whole = std::floor(epochs);
  const auto before = static_cast<double>(loader.total_steps(static_cast<int64_t>(whole)));
  const auto after = static_cast<double>(loader.total_steps(static_cast<int64_t>(whole) + 1));
  constexpr double kRounding = 1e-9;
  return static_cast<int64_t>(std::ceil(before + (epochs - whole) * (after - before) - kRounding));
}

/// "16 rows", "16 until step 500, then 8 rows", or "4096 tokens at most".
std::string size_of_a_step(const Recipe& recipe) {
  const auto tokens = recipe.train.max_tokens_per_batch;
  const int64_t micro = tokens.value_or(recipe.train.per_device_batch_size);
  const std::string unit = tokens ? " tokens at most" : " rows";
  if (!recipe.schedule.accumulation_stages)
    return std::to_string(micro * recipe.train.gradient_accumulation_steps) + unit;
  std::string text;
  for (const auto& [until_step, steps] : *recipe.schedule.accumulation_stages)
    text += fmt::format("{}{}", micro * steps, until_step ? fmt::format(" until step {}, then ", *until_step) : "");
  return text + unit;
}

/// The checkpoint that --resume means, if there is one.
std::optional<fs::path> find_checkpoint(const std::string& resume, const RunDirectory& run) {
  if (resume == "auto") {
    const auto newest = newest_checkpoint(run.checkpoints());
    return newest ? std::optional(newest->path) : std::nullopt;
  }
  if (resume != "none") {
    verify_checkpoint(resume, VerifyDepth::kHashes);
    return resume;
  }
  return std::nullopt;
}

/// Checkpoints behind the step where the run begins belong to a past that does not go on: they would pass for the newest.
void remove_later_checkpoints(const RunDirectory& run, int64_t step) {
  RetentionPlan plan;
  for (const auto& checkpoint : list_checkpoints(run.checkpoints()).checkpoints) {
    if (checkpoint.step <= step) continue;
    log_warning("{}: is removed, since the run begins at step {}", checkpoint.path.string(), step);
    plan.remove.push_back(checkpoint);
  }
  for (const auto& failed : apply_retention(plan).failed)
    throw io_error("{}: cannot be removed: {}", failed.name, failed.reason);
}

/// The first sample that trains, as text with its mask; and what the template leaves to us.
void show_first_sample(const Dataset& dataset, const ExampleBuilder& builder, const Tokenizer& tokenizer) {
  for (int64_t i = 0; i < std::min<int64_t>(dataset.size(), 20); ++i) {
    Skip skip = Skip::kNone;
    try {
      const auto example = builder.build(dataset.row(i), &skip);
      if (skip != Skip::kNone) continue;
      log_info("first sample ({}), trained text in [[ ]]:\n{}", dataset.place(i), describe_example(example, tokenizer));
      return;
    } catch (const UserError& error) {
      if (error.code() != ExitCode::kInput) throw;  // the loader counts and names bad rows
    }
  }
}

/// Names every bad row and shows what the rest comes to. Whether a run would go through with it: unusable rows within their
/// budget, none too long where that is an error, some to evaluate with.
bool check_data(const Recipe& recipe, const Dataset& dataset, const std::optional<Dataset>& validation,
                const ExampleBuilder& builder) {
  bool good = true;
  const auto check = [&](const char* name, const Dataset& rows) {
    const auto found = check_dataset(rows, builder, static_cast<int>(recipe.data.num_workers));
    log_info("{}: {}", name, describe_check(found, recipe.data.max_length));
    if (recipe.data.truncation == Truncation::kError && found.too_long > 0) {
      good = false;
      log_warning("{}: {} rows are too long, where data.truncation is error", name, found.too_long);
    }
    return found;
  };
  const auto train = check("data.train", dataset);
  if (const int64_t unusable = train.bad + train.no_labels;
      static_cast<double>(unusable) > recipe.data.bad_sample_budget * static_cast<double>(train.rows)) {
    good = false;
    log_warning("data.train: {} of {} rows are unusable, more than the bad_sample_budget of {}", unusable, train.rows,
                recipe.data.bad_sample_budget);
  }
  if (validation && check("data.validation", *validation).usable == 0) {
    good = false;
    log_warning("data.validation: no row is usable");
  }
  return good;
}

void remove_old_checkpoints(const RunDirectory& run, const Recipe& recipe) {
  const RetentionRule rule{.kind = recipe.output.retention == Retention::kLossDrop ? RetentionRule::Kind::kLossDrop
                                                                                   : RetentionRule::Kind::kTotal,
                           .keep_last = recipe.output.save_total_limit,
                           .keep_best = recipe.output.keep_best};
  for (const auto& failed : apply_retention(plan_retention(list_checkpoints(run.checkpoints()), rule)).failed)
    log_warning("{}: cannot be removed: {}", failed.name, failed.reason);
}

void save_checkpoint(const RunDirectory& run, const Recipe& recipe, const RunPosition& position,
                     const Optimizer& optimizer, const LossScaler& scaler, ModelParts& parts, double train_loss,
                     std::optional<double> eval_loss) {
  CheckpointWriter writer(run.checkpoints(), position.step);
  save_run_state(writer.path(), position, optimizer, scaler);
  if (parts.adapter) save_adapter(*parts.model, *parts.adapter, writer.path());
  const auto folder = writer.seal(train_loss, eval_loss);
  log_info("saved {}", folder.string());
  remove_old_checkpoints(run, recipe);
}

/// ", anls 0.7512" and so on.
std::string shown(const Scores& scores) {
  std::string text;
  for (const auto& [name, score] : scores) text += fmt::format(", {} {:.4f}", name, score);
  return text;
}

int stopped_before_the_first_step(int signal) {
  log_warning("stopped by signal {} before the first step; the same command goes on from here", signal);
  return static_cast<int>(ExitCode::kSignalBase) + signal;
}

}  // namespace

int run_training(const TrainArguments& arguments, Command command) {
  auto recipe = load_recipe(arguments.recipe, command, arguments.sets,
                            {.hardware_dirs = {}, .require_inputs = !arguments.print_recipe});
  if (arguments.print_recipe) {
    std::fputs((print_recipe(recipe) + "\n").c_str(), stdout);
    return 0;
  }
  catch_interrupts();
  const auto device = open_device(recipe);
  recipe = apply_memory_plan(recipe, command, named_settings(arguments.recipe, arguments.sets));

  // Data.
  const auto inputs = assemble_inputs(recipe, command);
  const auto dataset = open_training_data(recipe);
  const auto validation = open_validation_data(recipe);
  std::shared_ptr<const EmbeddingCache> cache;
  if (!arguments.dry_run) {
    std::vector<Dataset> all{dataset};
    if (validation) all.push_back(*validation);
    cache = prepare_embedding_cache(recipe, inputs, all, device);
    if (const int signal = interrupt_signal()) return stopped_before_the_first_step(signal);
  }
  const ExampleBuilder builder(inputs.example_options(recipe, cache));
  BatchLoader loader(dataset, builder, loader_options(recipe));
  const int64_t total_steps = count_total_steps(recipe, loader);
  log_info("{} rows, {} optimizer steps of {}, template: {}", dataset.size(), total_steps, size_of_a_step(recipe),
           inputs.chat_template.empty() ? "none" : inputs.chat_template.origin());
  show_first_sample(dataset, builder, *inputs.tokenizer);
  if (arguments.dry_run && !check_data(recipe, dataset, validation, builder)) return static_cast<int>(ExitCode::kInput);
  if (const int signal = interrupt_signal()) return stopped_before_the_first_step(signal);

  // Model.
  auto parts = assemble_model(recipe, inputs.config, command, device);
  auto& model = *parts.model;
  auto options = step_options(recipe, inputs);
  auto scaler = make_loss_scaler(recipe);
  const auto schedule = make_schedule(recipe, total_steps);
  const auto optimizer = make_optimizer(recipe, model);
  log_info("{}", trainables_table(model));
  if (arguments.dry_run) return 0;

  // Where to begin.
  const auto run = make_run_directory(*recipe.output.dir);
  const RunLock lock(run);
  remove_stale_files(run);
  open_log_file(run.log());
  snapshot_device_when_full(run.root / "device-memory.json");
  write_file_atomic(run.recipe(), print_recipe(recipe) + "\n");
  RunPosition position;
  if (const auto checkpoint = find_checkpoint(arguments.resume, run)) {
    position = load_run_state(*checkpoint, *optimizer, scaler);
    loader.seek(position.epoch, position.position, position.step);
    log_info("resumed from step {} ({})", position.step, checkpoint->string());
  }
  remove_later_checkpoints(run, position.step);
  truncate_metrics(run.metrics(), position.step);
  MetricsWriter metrics(run.metrics());

  // The loop.
  double loss_since_save = 0;
  int64_t steps_since_save = 0;
  int skipped = 0;
  bool saved = true, trained = false;
  std::optional<double> eval_loss;  // of the step at hand
  MemoryMonitor monitor(memory_capacity(recipe));
  ProgressBar progress(std::string(command_name(command)), "step", total_steps);
  const auto evaluate_now = [&] {
    const PhaseScope phase("evaluation");
    auto quiet = options;
    quiet.mode = {};
    eval_loss = evaluate(model, *validation, builder, recipe.train.per_device_batch_size, quiet).loss;
    const auto scores = evaluation_scores(recipe, inputs, model, *validation, builder);
    metrics.append(EvalMetrics{position.step, *eval_loss, scores});
    log_info("step {}: evaluation loss {:.4f}{}", position.step, *eval_loss, shown(scores));
  };
  const auto save_now = [&] {
    const PhaseScope phase("save");
    save_checkpoint(run, recipe, position, *optimizer, scaler, parts,
                    loss_since_save / static_cast<double>(std::max<int64_t>(1, steps_since_save)), eval_loss);
    loss_since_save = 0;
    steps_since_save = 0;
    saved = true;
  };
  while (position.step < total_steps && interrupt_signal() == 0) {
    const double begin = now_seconds();
    const auto batch = loader.next();
    if (!batch) break;
    memory_accounts().device->reset_window();
    options.loss_scale = scaler.scale();
    const MicroBatches micro{static_cast<int64_t>(batch->micro.size()), batch->label_tokens, [&](int64_t i) {
                               return make_batch(batch->micro[static_cast<size_t>(i)], options.pad_id,
                                                 PaddingSide::kRight);
                             }};
    const double factor = schedule.factor(position.step);
    const auto result =
        train_step(model, micro, *optimizer, position.step, factor, recipe.optimizer.max_grad_norm, options);
    const double loss = result.loss, grad_norm = result.grad_norm;
    const bool finite = result.finite();
    if (!finite && (recipe.precision.compute != Precision::kFp16 || ++skipped >= kMaxSkippedSteps))
      throw UserError(ExitCode::kInternal,
                      fmt::format("step {}: the loss is {} and the gradient norm {}; the first bad gradient is {}'s. "
                                  "Lower the learning rate, or compute in bf16 or fp32",
                                  position.step + 1, loss, grad_norm, result.first_bad_gradient));
    if (position.step == 0 && !options.optimizer_in_backward)
      for (const auto& name : without_gradient(optimizer->tensors()))
        log_warning("{} got no gradient in the first step", name);
    if (finite) {
      skipped = 0;
      loss_since_save += loss;
      ++steps_since_save;
    }
    scaler.update(finite);
    zero_gradients(optimizer->tensors());
    position = {position.step + 1, batch->epoch, batch->position_after};
    saved = false;
    trained = true;
    eval_loss.reset();
    const int64_t peak = memory_accounts().device->window_peak(), resident = resident_bytes();
    const double seconds = now_seconds() - begin;
    metrics.append({.step = position.step,
                    .epoch = static_cast<double>(position.epoch) +
                             static_cast<double>(position.position) / static_cast<double>(dataset.size()),
                    .loss = loss,
                    .learning_rate = recipe.optimizer.learning_rate * factor,
                    .grad_norm = grad_norm,
                    .similarity = result.similarity,
                    .loss_scale = options.loss_scale,
                    .samples = batch->samples,
                    .tokens = batch->tokens,
                    .label_tokens = batch->label_tokens,
                    .image_tokens = batch->image_tokens,
                    .step_seconds = seconds,
                    .tokens_per_second = static_cast<double>(batch->tokens) / seconds,
                    .peak_memory_bytes = peak,
                    .resident_bytes = resident});
    monitor.step(memory_accounts().device->bytes(), peak, resident);
    progress.update(position.step,
                    fmt::format("loss {:.4f} lr {:.2e} {:.0f} tok/s {}", loss, recipe.optimizer.learning_rate * factor,
                                static_cast<double>(batch->tokens) / seconds, format_bytes(peak)));
    const bool last = position.step == total_steps;
    if (validation && (last || (recipe.train.eval_steps > 0 && position.step % recipe.train.eval_steps == 0)))
      evaluate_now();
    if (last || (recipe.train.save_steps > 0 && position.step % recipe.train.save_steps == 0)) save_now();
  }
  if (const int signal = interrupt_signal()) {
    if (!saved) save_now();
    log_warning("stopped by signal {} after step {}; the same command goes on from here", signal, position.step);
    return static_cast<int>(ExitCode::kSignalBase) + signal;
  }

  // What stays.
  if (!saved) save_now();
  remove_old_checkpoints(run, recipe);  // a run that was killed behind its last save has them still
  write_final(recipe, inputs, parts, run.root);
  if (trained || !fs::exists(run.memory())) {  // else what an earlier start measured stays
    auto memory = measured_memory(recipe, command);
    memory.figures.loader_bytes = loader.counts().ready_bytes;
    write_memory_json(run.memory(), memory);
  }
  write_report(run.root);
  log_info("report: {}", run.report().string());
  return 0;
}

}  // namespace vlmtune
