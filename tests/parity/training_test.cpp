// Ten optimizer steps against transformers' Trainer and PEFT: losses, norms, rates, first gradients, final weights.
#include <iostream>

#include "lib/optim/adamw.h"
#include "lib/optim/schedule.h"
#include "lib/train/step.h"
#include "lib/train/trainables.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

class Training : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string("training/") + GetParam(); }
  bool is_lora() const { return golden_.has("lora"); }
  bool is_half() const { return golden_.text("compute") == "bf16"; }

  TrainingChoices choices() const {
    TrainingChoices choices;
    const auto trained = golden_.texts("trained");
    choices.language_model = std::count(trained.begin(), trained.end(), "language_model") > 0;
    choices.vision_tower = std::count(trained.begin(), trained.end(), "vision_tower") > 0;
    choices.learning_rate = golden_.number("learning_rate");
    choices.weight_decay = golden_.number("weight_decay");
    if (std::string(GetParam()).ends_with("components")) {
      choices.vision_learning_rate = 2e-4;
      choices.projector_learning_rate = 2e-3;
    }
    return choices;
  }

  Schedule schedule() const {
    const auto name = golden_.text("schedule");
    const auto shape = name == "cosine"   ? ScheduleShape::kCosine
                       : name == "linear" ? ScheduleShape::kLinear
                                          : ScheduleShape::kConstant;
    return {.shape = shape,
            .warmup_steps = golden_.integers("warmup_steps")[0],
            .total_steps = golden_.integers("steps")[0]};
  }

  /// Micro-batch n of the run.
  ModelBatch micro_batch(int64_t n) const {
    const auto prefix = std::to_string(n % 6) + ".";
    ModelBatch batch{
        with_slots(micro_.view(prefix + "input_ids").clone(), config_), micro_.view(prefix + "labels").clone(), {}, {}};
    if (!micro_.has(prefix + "pixel_values")) return batch;
    if (micro_.has(prefix + "image_grid_thw")) {
      const auto grids = micro_.view(prefix + "image_grid_thw");
      batch.images = images_of_patches(micro_.view(prefix + "pixel_values"), grids, all_rows(grids), config_);
      return batch;
    }
    for (const auto& pixels : micro_.view(prefix + "pixel_values").clone().split(1)) {
      batch.images.pixels.push_back(pixels);
      const int side = static_cast<int>(pixels.size(2));
      batch.images.shapes.push_back({.original = {side, side}, .tiles = 1, .height = side, .width = side});
    }
    return batch;
  }

  std::string our_name(std::string name) const {
    constexpr std::string_view kPrefix = "base_model.model.";
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    return canonical_tensor_name(name, PartKind::kWhole);
  }

  void expect_first_gradients(const std::vector<TrainedTensor>& trained) const {
    if (is_half()) return;
    const auto noise = golden_.texts("noise_grad");
    double worst = 0;
    std::map<std::string, Tensor> found;
    for (const auto& t : trained) found[t.name] = t.tensor.grad();
    for (const auto& name : golden_.names("step0.grad.")) {
      const auto expected = golden_.tensor("step0.grad." + name);
      const double d = difference(found.at(our_name(name)), expected);
      const bool is_noise = std::count(noise.begin(), noise.end(), name) > 0;
      const double relative = is_noise ? d / golden_.numbers("grad_norms")[0] : d / expected.abs().max().item<double>();
      EXPECT_LE(relative, is_noise ? 1e-6 : kGradientTolerance) << name;
      if (!is_noise) worst = std::max(worst, relative);
      found.erase(our_name(name));
    }
    for (const auto& [name, gradient] : found) EXPECT_FALSE(gradient.defined()) << name;
    std::cout << fmt::format("{:>10.2e}  gradients of the first step\n", worst);
  }

  void expect_final(VlmModel& model) const {
    if (is_half()) return;
    std::map<std::string, Tensor> found;
    model.visit([&](const std::string& name, Tensor& tensor) { found[name] = tensor; });
    const auto noise = golden_.texts("noise_grad");
    const auto noise_rows = golden_.lists("noise_rows");
    double worst = 0;
    const auto compare = [&](const std::string& name, const Tensor& expected) {
      if (std::count(noise.begin(), noise.end(), name) > 0) return;
      auto difference_of_rows = found.at(our_name(name)).detach() - expected;
      if (const auto rows = noise_rows.find(name); rows != noise_rows.end())
        difference_of_rows.index_fill_(0, torch::tensor(rows->second, torch::kLong), 0);
      const double d = difference(difference_of_rows, torch::zeros_like(expected));
      EXPECT_LE(d, 2e-5) << name;  // a fiftieth of one step's rate
      worst = std::max(worst, d);
    };
    if (is_lora()) {
      const auto adapter = Checkpoint::open_file(golden_path(folder()) / "final/adapter_model.safetensors");
      for (const auto& name : adapter.names()) compare(name, adapter.view(name));
    } else {
      for (const auto& name : golden_.names("final."))
        if (found.contains(our_name(name))) compare(name, golden_.tensor("final." + name));
    }
    std::cout << fmt::format("{:>10.2e}  weights after ten steps\n", worst);
  }

  Golden golden_{folder()};
  VlmConfig config_ = read_vlm_config(golden_path("models/" + golden_.text("base")), std::nullopt, {});
  Checkpoint micro_ = Checkpoint::open_file(golden_path(
      (golden_.has("micro_batches") ? golden_.text("micro_batches") : "training") + "/micro_batches.safetensors"));
};

TEST_P(Training, TenSteps) {
  const auto choices = this->choices();
  WeightOptions weights;
  weights.is_trained = [&](const std::string& name) { return is_trained(name, choices); };
  if (is_lora() && is_half()) weights.frozen_type = torch::kBFloat16;
  if (golden_.has("quantized"))
    weights.quantization.applies = [](const std::string& module) {
      return component_of(module) == Component::kLanguageModel && module != "lm_head";
    };
  auto model = load_model(golden_path("models/" + golden_.text("base")), weights);
  if (is_lora()) load_adapter(*model, golden_path(folder()) / "init");
  const auto trained = select_trained(*model, choices);
  AdamW optimizer(trained,
                  {.betas = {golden_.numbers("betas")[0], golden_.numbers("betas")[1]}, .eps = golden_.number("eps")});
  StepOptions options;
  options.compute_type = is_half() ? torch::kBFloat16 : torch::kFloat;
  options.mode.training = true;
  const int64_t accumulation = golden_.integers("accumulation")[0];
  const auto losses = golden_.numbers("losses"), norms = golden_.numbers("grad_norms"),
             rates = golden_.numbers("learning_rates");
  // The reference's own fp32 run: where its bf16 run is further from that than the bound, its distance is the bound.
  const auto exact = is_half()
                         ? Golden("training/" + std::string(GetParam()).substr(0, std::string(GetParam()).find('-')))
                               .numbers("grad_norms")
                         : norms;
  // In bf16 the reference's two attention kernels differ by 1e-3 and 2e-2, and its autocast keeps the residual stream of fp32
  // weights in fp32, which this program holds in bf16.
  const double loss_tolerance = is_half() ? 3e-3 : kLossTolerance, norm_tolerance = is_half() ? 2e-2 : 2e-5;
  double worst_loss = 0, worst_norm = 0;
  for (int64_t step = 0; step < golden_.integers("steps")[0]; ++step) {
    const auto i = static_cast<size_t>(step);
    MicroBatches batches{.count = accumulation,
                         .make = [&](int64_t n) { return micro_batch(accumulation * step + n); }};
    for (int64_t n = 0; n < accumulation; ++n) batches.label_tokens += label_tokens(batches.make(n));
    EXPECT_EQ(batches.label_tokens, golden_.integers("label_tokens")[i]);
    zero_gradients(trained);
    const double loss = accumulate_gradients(*model, batches, step, options).loss;
    if (step == 0) expect_first_gradients(trained);
    const double norm = clip_gradients(trained, golden_.number("max_grad_norm"));
    const double factor = schedule().factor(step);
    EXPECT_NEAR(factor * choices.learning_rate, rates[i], 1e-12);
    optimizer.step(factor);
    EXPECT_NEAR(loss, losses[i], loss_tolerance * losses[i]) << "step " << step;
    EXPECT_NEAR(norm, norms[i], std::max(norm_tolerance * norms[i], std::abs(norms[i] - exact[i]))) << "step " << step;
    worst_loss = std::max(worst_loss, std::abs(loss / losses[i] - 1));
    worst_norm = std::max(worst_norm, std::abs(norm / norms[i] - 1));
  }
  std::cout << fmt::format("{:>10.2e}  losses\n{:>10.2e}  gradient norms\n", worst_loss, worst_norm);
  expect_final(*model);
}

INSTANTIATE_TEST_SUITE_P(Goldens, Training,
                         testing::Values("lora", "full", "full-tied", "projector", "components", "lora-bf16", "qlora",
                                         "full-bf16", "qwen2-vl-lora", "qwen2-vl-qlora", "qwen2-vl-components",
                                         "qwen2.5-vl-lora", "qwen2.5-vl-qlora", "qwen2.5-vl-components",
                                         "qwen3-vl-lora", "qwen3-vl-qlora", "qwen3-vl-components", "qwen-vl-lora",
                                         "qwen-vl-qlora", "qwen-vl-components"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace vlmtune::test
