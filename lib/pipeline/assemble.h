// From a recipe to the parts of a run: tokenizer, template, image processor, model with its weights and adapters.
#pragma once
#include <memory>
#include <optional>

#include "lib/data/example.h"
#include "lib/image/processor.h"
#include "lib/models/adapter.h"
#include "lib/models/vlm/model.h"
#include "lib/models/weights.h"
#include "lib/recipe/recipe.h"
#include "lib/text/chat_template.h"
#include "lib/text/tokenizer.h"

namespace vlmtune {

class EmbeddingCache;

/// What turns rows into model inputs.
struct InputParts {
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatTemplate chat_template;  ///< empty: the checkpoint has none and the recipe names none
  std::optional<ImageProcessor> image_processor, video_processor;
  VlmConfig config;
  int64_t pad_id = 0;

  /// With a cache, pictures are looked up there and never decoded.
  ExampleOptions example_options(const Recipe& recipe, std::shared_ptr<const EmbeddingCache> cache = nullptr) const;
};

/// Reads config, tokenizer, template and image processor. Errors: input_error, usage_error.
InputParts assemble_inputs(const Recipe& recipe, Command command);

/// The model with its weights, and the adapter of model.adapter or of the lora section.
struct ModelParts {
  std::unique_ptr<VlmModel> model;
  std::vector<WeightSource> sources;     ///< kept mapped: frozen weights are looked at in place
  std::optional<AdapterConfig> adapter;  ///< of the LoRA layers on the model
};

/// On the meta device a config.json is enough: weight files are looked at if there are any. Training with an embedding cache
/// leaves the vision tower out. Trained tensors of the checkpoint are held in `trained_type`, which the recipe says if it is
/// not given; adapters in fp32. Errors: input_error,
/// usage_error.
ModelParts assemble_model(const Recipe& recipe, const VlmConfig& config, Command command,
                          torch::Device device = torch::kCPU, std::optional<torch::ScalarType> trained_type = {});

/// The vision tower alone, in memory of its own that goes with it. Errors: input_error.
ModelParts assemble_tower(const Recipe& recipe, const VlmConfig& config, torch::Device device = torch::kCPU);

/// The files that hold the vision tower. Errors: input_error.
WeightSource tower_source(const Recipe& recipe);

/// Of a model with a vision part, the processors of the model's or the tower's folder with the recipe's settings; on a dry run
/// the family's own where the folder has none. Errors: input_error, usage_error.
void choose_processors(const Recipe& recipe, InputParts& parts, bool dry_run = false);

}  // namespace vlmtune
