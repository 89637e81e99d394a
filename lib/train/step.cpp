#include "lib/train/step.h"

#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/data/damage.h"
#include "lib/memory/scope.h"
#include "lib/models/similarity.h"
#include "lib/train/similarity.h"
#include "lib/train/trainables.h"

namespace vlmtune {
namespace {

constexpr int64_t kUpdate = -1;  // in place of a micro-batch

/// A seed that differs for every micro-batch of every step, so that a resumed run draws what it would have drawn.
uint64_t step_seed(uint64_t seed, int64_t step, int64_t micro) {
  uint64_t x =
      seed * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(step) * 0xBF58476D1CE4E5B9ULL + static_cast<uint64_t>(micro);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;  // splitmix64
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

Tensor loss_sum(const VlmModel& model, const ModelBatch& batch, const Embedded& in, const StepOptions& options) {
  const auto hidden = model.language_model().forward(
      in.tokens, {.positions = model.positions(batch.ids, batch.images.shapes, {}, batch.first_keys),
                  .left_padding = {},
                  .first_keys = batch.first_keys,
                  .deepstack = in.deepstack,
                  .training = options.mode.training,
                  .recompute = options.mode.language_checkpointing});
  return model.loss_sum(hidden, batch.labels, options.loss_chunk_tokens);
}

}  // namespace

std::string phase_name(int64_t step, std::string_view part) {
  return step < 2 ? fmt::format("step {}: {}", step + 1, part) : fmt::format("later steps: {}", part);
}

int64_t label_tokens(const ModelBatch& batch) {
  return (batch.labels.narrow(1, 1, batch.labels.size(1) - 1) != kIgnoreLabel).sum().item<int64_t>();
}

Tensor batch_loss_sum(const VlmModel& model, const ModelBatch& batch, const StepOptions& options) {
  return loss_sum(model, batch, model.embed(batch.ids, batch.images, options.compute_type, options.mode), options);
}

StepLosses accumulate_gradients(const VlmModel& model, const MicroBatches& batches, int64_t step,
                                const StepOptions& options) {
  VLMTUNE_CHECK(batches.label_tokens > 0, "a step without supervised tokens");
  const double labels = static_cast<double>(batches.label_tokens);
  double total = 0, cosines = 0;
  int64_t pairs = 0;
  for (int64_t micro = 0; micro < batches.count; ++micro) {
    model.seed_dropout(step_seed(options.seed, step, micro));
    const auto batch = batches.make(micro);
    const auto loss = [&] {
      const PhaseScope phase(phase_name(step, "forward"));
      const auto in = model.embed(batch.ids, batch.images, options.compute_type, options.mode);
      const auto sum = loss_sum(model, batch, in, options);
      total += sum.item<double>();
      const auto mean = sum * (options.loss_scale / labels);
      if (options.similarity_weight == 0) return mean;
      const auto found = embed_pairs(model, batch, in.tokens, options.mode);
      if (found.count() == 0) return mean;
      pairs += found.count();
      cosines += (found.pictures * found.texts).sum().item<double>();
      const double weight = options.similarity_weight * options.loss_scale / static_cast<double>(batches.count);
      return mean + contrastive_loss(found.pictures, found.texts, model.similarity_head().logit_scale) * weight;
    }();
    const PhaseScope phase(phase_name(step, "backward"));
    // A text-only batch of a run that trains the projector alone has nothing to differentiate.
    if (loss.requires_grad()) loss.backward();
  }
  return {total / labels, pairs == 0 ? std::nullopt : std::optional(cosines / static_cast<double>(pairs))};
}

void unscale_gradients(const std::vector<TrainedTensor>& tensors, double loss_scale) {
  if (loss_scale == 1) return;
  const torch::NoGradGuard no_grad;
  for (const auto& t : tensors)
    if (auto gradient = t.gradient(); gradient.defined()) gradient.mul_(1 / loss_scale);
}

StepResult train_step(const VlmModel& model, const MicroBatches& batches, Optimizer& optimizer, int64_t step,
                      double rate_factor, double max_grad_norm, const StepOptions& options) {
  StepResult result;
  const auto& tensors = optimizer.tensors();
  const uint64_t noise = step_seed(options.seed, step, kUpdate);
  double norm_in_backward = 0;
  const auto update_now = [&](size_t i) {
    // Blocks of the tower may run once for some tiles and once for others: their gradients are whole only at the end.
    if (component_of(tensors[i].name) != Component::kLanguageModel) return;
    const double norm = clip_gradients({tensors[i]}, 0);
    norm_in_backward = std::hypot(norm_in_backward, norm);
    if (std::isfinite(norm))
      optimizer.step_one(i, rate_factor, noise);
    else if (result.first_bad_gradient.empty())
      result.first_bad_gradient = tensors[i].name;
    zero_gradients({tensors[i]});
  };
  if (options.gradients_on_host) on_gradient(tensors, [&](size_t i) { move_gradient_to_host(tensors[i]); });
  if (options.optimizer_in_backward) on_gradient(tensors, update_now);
  const auto losses = accumulate_gradients(model, batches, step, options);
  result.loss = losses.loss;
  result.similarity = losses.similarity;
  on_gradient(tensors, nullptr);
  const PhaseScope phase(phase_name(step, "optimizer"));
  unscale_gradients(tensors, options.loss_scale);
  result.grad_norm = std::hypot(norm_in_backward, clip_gradients(tensors, max_grad_norm));
  if (result.finite())
    optimizer.step(rate_factor, noise);
  else if (result.first_bad_gradient.empty())
    result.first_bad_gradient = first_bad_gradient(tensors);
  return result;
}

EvaluationResult evaluate(const VlmModel& model, const Dataset& dataset, const ExampleBuilder& builder,
                          int64_t batch_size, const StepOptions& options) {
  const torch::NoGradGuard no_grad;
  EvaluationResult result;
  double total = 0;
  ProgressBar progress("evaluating", "row", dataset.size());
  std::vector<Example> rows;
  const auto run = [&] {
    if (rows.empty()) return;
    const auto batch = make_batch(rows, options.pad_id, PaddingSide::kRight);
    total += batch_loss_sum(model, batch, options).item<double>();
    result.label_tokens += label_tokens(batch);
    result.samples += static_cast<int64_t>(rows.size());
    rows.clear();
  };
  for (int64_t i = 0; i < dataset.size(); ++i) {
    leaving_out_damage([&] {
      Skip skip = Skip::kNone;
      auto example = builder.build(dataset.row(i), &skip);
      if (skip == Skip::kNone) rows.push_back(std::move(example));
    });
    if (static_cast<int64_t>(rows.size()) == batch_size) run();
    progress.update(i + 1, "");
  }
  run();
  if (result.label_tokens == 0) throw input_error("data.validation: no row is usable");
  result.loss = total / static_cast<double>(result.label_tokens);
  return result;
}

}  // namespace vlmtune
