// One optimizer step in named pieces: forward and backward of its micro-batches, normalised by supervised tokens.
#pragma once
#include <cmath>

#include "lib/data/loader.h"
#include "lib/optim/optimizer.h"
#include "lib/train/batch.h"

namespace vlmtune {

struct StepOptions {
  torch::ScalarType compute_type = torch::kFloat;
  TrainingMode mode;
  int64_t loss_chunk_tokens = 1024;
  double similarity_weight = 0;  ///< of the contrastive loss beside the language model's; needs a similarity head
  double loss_scale = 1;
  int64_t pad_id = 0;
  /// Each tensor of the language model is updated, and its gradient freed, as soon as the gradient is there (LOMO, Lv et al.
  /// 2023, arXiv 2306.09782): one micro-batch, no clipping, no loss scale.
  bool optimizer_in_backward = false;
  bool gradients_on_host = false;
  uint64_t seed = 42;  ///< of dropout; every micro-batch of every step draws its own numbers
};

/// Sum of the negative log-likelihood over the batch's supervised tokens (an fp32 scalar).
Tensor batch_loss_sum(const VlmModel& model, const ModelBatch& batch, const StepOptions& options);

/// The micro-batches of a step, made one at a time when their turn comes.
struct MicroBatches {
  int64_t count = 0;
  int64_t label_tokens = 0;  ///< of all together
  std::function<ModelBatch(int64_t index)> make;
};

/// "step 1: forward": the first two steps have phases of their own, since optimizer state appears at the end of the first.
std::string phase_name(int64_t step, std::string_view part);

/// Unscaled losses of a step.
struct StepLosses {
  double loss = 0;                   ///< mean per supervised token
  std::optional<double> similarity;  ///< mean cosine of pictures and their texts, where the step has any
};

/// Adds the gradients of `loss_scale` times the mean loss per supervised token of the whole step, over all its micro-batches, and
/// of the weighted mean of their contrastive losses. `step` chooses the dropout's random numbers.
StepLosses accumulate_gradients(const VlmModel& model, const MicroBatches& batches, int64_t step,
                                const StepOptions& options);

/// Divides the gradients by the loss scale.
void unscale_gradients(const std::vector<TrainedTensor>& tensors, double loss_scale);

/// One optimizer step: all gradients, unscaled and clipped, then the update if everything is finite. Gradients that were not
/// used in backward are still there afterwards; `options.loss_scale` is the scaler's.
struct StepResult {
  double loss = 0, grad_norm = 0;
  std::optional<double> similarity;
  std::string first_bad_gradient;  ///< the name of a tensor, when not finite
  bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};
StepResult train_step(const VlmModel& model, const MicroBatches& batches, Optimizer& optimizer, int64_t step,
                      double rate_factor, double max_grad_norm, const StepOptions& options);

/// Number of supervised tokens of a batch, without position 0, which nothing predicts.
int64_t label_tokens(const ModelBatch& batch);

/// Mean loss per supervised token over a data set, without gradients.
struct EvaluationResult {
  double loss = 0;
  int64_t label_tokens = 0, samples = 0;
};
EvaluationResult evaluate(const VlmModel& model, const Dataset& dataset, const ExampleBuilder& builder,
                          int64_t batch_size, const StepOptions& options);

}  // namespace vlmtune
