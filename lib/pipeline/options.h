// Flat options out of the recipe's sections.
#pragma once
#include <memory>
#include <optional>

#include "lib/data/loader.h"
#include "lib/optim/loss_scaler.h"
#include "lib/optim/optimizer.h"
#include "lib/optim/schedule.h"
#include "lib/pipeline/assemble.h"
#include "lib/train/step.h"
#include "lib/train/trainables.h"

namespace vlmtune {

torch::ScalarType to_scalar_type(Precision precision);
/// Of trained tensors: with the optimizer on the host, its fp32 copies are there, and the device has what it computes with.
torch::ScalarType trained_type_of(const Recipe& recipe);
QuantizationOptions quantization_options(const QuantizationRecipe& recipe);
TrainingChoices training_choices(const Recipe& recipe, const VlmConfig& config);
StepOptions step_options(const Recipe& recipe, const InputParts& inputs);
/// Errors: usage_error when nothing would be trained.
std::unique_ptr<Optimizer> make_optimizer(const Recipe& recipe, VlmModel& model);
Schedule make_schedule(const Recipe& recipe, int64_t total_steps);
LossScaler make_loss_scaler(const Recipe& recipe);
LoaderOptions loader_options(const Recipe& recipe);
Dataset open_training_data(const Recipe& recipe);
std::optional<Dataset> open_validation_data(const Recipe& recipe);

}  // namespace vlmtune
