#include "lib/train/trainables.h"

#include <algorithm>
#include <regex>

#include "lib/memory/scope.h"
#include "lib/memory/tracking.h"
#include "lib/models/adapter.h"
#include "lib/models/names.h"

namespace vlmtune {
namespace {

/// As transformers' Trainer: biases and every norm stay undecayed.
bool is_decayed(const std::string& name) {
  static const std::regex kUndecayed(
      "(bias|logit_scale|layernorm|layer_norm|layrnorm|rmsnorm|(^|\\.)(norm[0-9]*|ln_[a-z0-9]+)($|\\.)|_norm($|\\.)|"
      "downsampling_layer\\.0\\.)",
      std::regex::icase);
  return !std::regex_search(name, kUndecayed);
}

/// The memory of a gradient is the gradient's from the moment it is there.
struct GradientHook : torch::autograd::PostAccumulateGradHook {
  explicit GradientHook(std::string module, std::function<void()> then)
      : module_(std::move(module)), then_(std::move(then)) {}
  void operator()(const Tensor& tensor) override {
    const ModuleScope scope(module_);
    claim_memory(tensor.grad(), MemoryCategory::kGradients);
    if (then_) then_();
  }

 private:
  std::string module_;
  std::function<void()> then_;
};

}  // namespace

bool is_trained(const std::string& name, const TrainingChoices& choices) {
  if (is_lora(name)) return true;
  if (lies_in(name, choices.modules_to_save)) return true;
  switch (component_of(name)) {
    case Component::kVisionTower:
      return choices.vision_tower;
    case Component::kProjector:
      return choices.projector;
    case Component::kLanguageModel:
      return choices.language_model;
  }
  return false;
}

std::vector<TrainedTensor> select_trained(VlmModel& model, const TrainingChoices& choices) {
  std::vector<TrainedTensor> trained;
  model.visit([&](const std::string& name, Tensor& tensor) {
    if (!is_trained(name, choices)) return;
    double rate = choices.learning_rate;
    const auto component = component_of(name);
    if (component == Component::kProjector) rate = choices.projector_learning_rate.value_or(rate);
    if (component == Component::kVisionTower) rate = choices.vision_learning_rate.value_or(rate);
    tensor.requires_grad_(true);
    trained.push_back({name, tensor, rate, is_decayed(name) ? choices.weight_decay : 0, memory_module(name)});
  });
  on_gradient(trained, nullptr);
  return trained;
}

void on_gradient(const std::vector<TrainedTensor>& tensors, const std::function<void(size_t index)>& then) {
  for (size_t i = 0; i < tensors.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(
        tensors[i].tensor,
        std::make_unique<GradientHook>(tensors[i].module, then ? [then, i] { then(i); } : std::function<void()>()));
}

std::string trainables_table(VlmModel& model) {
  struct Sums {
    int64_t trained = 0, lora = 0, all = 0;
  } sums[3], total;
  model.visit([&](const std::string& name, Tensor& tensor) {
    for (auto* s : {&sums[static_cast<int>(component_of(name))], &total}) {
      s->all += tensor.numel();
      if (!tensor.requires_grad()) continue;
      s->trained += tensor.numel();
      if (is_lora(name)) s->lora += tensor.numel();
    }
  });
  std::string table =
      fmt::format("{:<16}{:>16}{:>14}{:>16}{:>10}\n", "component", "trained", "of it LoRA", "all", "share");
  const auto row = [&](const char* name, const Sums& s) {
    if (s.all > 0)
      table += fmt::format("{:<16}{:>16}{:>14}{:>16}{:>9.2f}%\n", name, s.trained, s.lora, s.all,
                           100.0 * static_cast<double>(s.trained) / static_cast<double>(s.all));
  };
  row("vision tower", sums[0]);
  row("projector", sums[1]);
  row("language model", sums[2]);
  row("total", total);
  table.pop_back();
  return table;
}

std::vector<std::string> without_gradient(const std::vector<TrainedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& t : tensors) {
    const auto gradient = t.gradient();
    const bool may_be_zero = t.name.ends_with(".lora_A.weight");
    if (!gradient.defined() || (!may_be_zero && gradient.count_nonzero().item<int64_t>() == 0)) names.push_back(t.name);
  }
  return names;
}

}  // namespace vlmtune
