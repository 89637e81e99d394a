// Which tensors train, with which rate and decay, and the table that says so.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "lib/models/vlm/model.h"
#include "lib/optim/trained_tensor.h"

namespace vlmtune {

struct TrainingChoices {
  bool vision_tower = false, projector = true, language_model = false;  ///< own weights of each part
  std::vector<std::string> modules_to_save;                             ///< modules trained whole beside LoRA
  double learning_rate = 2e-4;
  std::optional<double> projector_learning_rate, vision_learning_rate;
  double weight_decay = 0;
};

/// Whether a tensor trains: LoRA always, the rest by the choices. Known before weights are loaded.
bool is_trained(const std::string& tensor_name, const TrainingChoices& choices);

/// Makes the chosen tensors require gradients and lists them in the model's order. Biases and norms are not decayed.
std::vector<TrainedTensor> select_trained(VlmModel& model, const TrainingChoices& choices);

/// Has `then` called with the index of each tensor whose gradient has just been accumulated; null: nobody.
void on_gradient(const std::vector<TrainedTensor>& tensors, const std::function<void(size_t index)>& then);

/// A table of trained and all parameters by component.
std::string trainables_table(VlmModel& model);

/// After the first step: names of trained tensors that got no gradient, or only zeros where that is no accident
/// (LoRA's A has none in the first step, since B starts at zero).
std::vector<std::string> without_gradient(const std::vector<TrainedTensor>& tensors);

}  // namespace vlmtune
