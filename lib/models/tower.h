// The vision towers that a LLaVA takes features from (CLIP, SigLIP and DINOv2 in vit, ConvNeXt-V2 in convnext): square pictures
// to hidden states, each a grid of features. What is known from config.json alone, and the modules.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/nn/recompute.h"
#include "lib/nn/weight_stream.h"

namespace vlmtune {

class ConfigReader;

class Tower {
 public:
  virtual ~Tower() = default;

  /// pixels [N, C, S, S] -> the hidden states asked for, each [N, features, D], those of a grid row by row behind a class
  /// token if the tower has one. State 0 is what enters the first block. Runs in `pixels`' type. `stream` is of the blocks,
  /// if they are not kept.
  virtual std::vector<Tensor> hidden_states(const Tensor& pixels, const std::vector<int64_t>& states,
                                            const RecomputePolicy& policy, bool training,
                                            WeightStream* stream = nullptr) const = 0;

  /// Under the names that transformers 5 has in memory, after `prefix`.
  virtual void visit(const std::string& prefix, const TensorVisitor& visitor) = 0;
  virtual void visit_linears(const std::string& prefix, const LinearVisitor& visitor) = 0;
  virtual torch::Device device() const = 0;
};

struct TowerConfig {
  int64_t image_size = 0;  ///< S

  virtual ~TowerConfig() = default;
  virtual int64_t last_state() const = 0;
  /// Whose features a projector is trained on that is new, counted from the last: -1 is the last.
  virtual int64_t usual_state() const { return -2; }
  virtual bool has_class_token() const = 0;
  /// Features of a state along a side of the picture, and channels of each.
  virtual int64_t grid_side(int64_t state) const = 0;
  virtual int64_t width(int64_t state) const = 0;
  /// All that features depend on beside weights and pixels, as text.
  virtual std::string describe() const = 0;
  /// Modules that checkpoints hold and that are not run up to `state`.
  virtual std::vector<std::string> unused_modules(int64_t state) const = 0;
  /// Whether its own config.json leaves out how large pictures are, which is for the processor to say.
  virtual bool takes_any_size() const { return false; }
  /// Whether llava-hf's checkpoints have the tower below a module of its own, "vision_model".
  virtual bool has_vision_model() const { return false; }
  /// The tower up to `state`: what comes behind is never run, so never loaded.
  virtual std::unique_ptr<Tower> build(int64_t state) const = 0;
};

/// Reads a tower's config with transformers' defaults; a whole CLIP or SigLIP model's config is looked into. `side`: of the
/// pictures that the tower is given, where it takes any. Errors: input_error.
std::shared_ptr<const TowerConfig> read_tower_config(const ConfigReader& config,
                                                     std::optional<int64_t> side = std::nullopt);

}  // namespace vlmtune
