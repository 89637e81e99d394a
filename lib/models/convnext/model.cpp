#include "lib/models/convnext/model.h"

#include "kernels/depthwise_conv.h"
#include "lib/base/errors.h"
#include "lib/memory/scope.h"

namespace vlmtune {
namespace {

constexpr double kNormEps = 1e-6;  // whatever config.json says
constexpr int64_t kKernelSide = 7, kExpansion = 4;

ConvNextBlock declared_block(int64_t size) {
  const int64_t inner = kExpansion * size;
  return {declared({size, 1, kKernelSide, kKernelSide}),
          declared({size}),
          LayerNorm(size, kNormEps),
          Linear(size, inner, true),
          Linear(inner, size, true),
          declared({1, 1, 1, inner}),
          declared({1, 1, 1, inner})};
}

/// Global response normalisation: x [N, h, w, D] by each channel's norm over the picture, relative to the channels' mean.
Tensor response_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto norm = at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2}, /*keepdim=*/true);  // [N, 1, 1, D]
  const auto response = norm / (norm.mean(-1, true) + 1e-6);
  return torch::addcmul(bias.to(x.scalar_type()), x, weight.to(x.scalar_type()) * response + 1);
}

Tensor channels_first(const Tensor& x) { return x.permute({0, 3, 1, 2}); }

}  // namespace

ConvNext::ConvNext(const ConvNextConfig& c, int64_t num_stages)
    : config_(c),
      patch_embeddings_(c.num_channels, c.hidden_sizes[0], c.patch_size, true),
      layernorm_(c.hidden_sizes[0], kNormEps) {
  for (int64_t i = 0; i < num_stages; ++i) {
    const auto at = static_cast<size_t>(i);
    ConvNextStage stage;
    if (i > 0) {
      stage.downsampling_norm = LayerNorm(c.hidden_sizes[at - 1], kNormEps);
      stage.downsampling = PatchConv(c.hidden_sizes[at - 1], c.hidden_sizes[at], 2, true);
    }
    for (int64_t k = 0; k < c.depths[at]; ++k) stage.layers.push_back(declared_block(c.hidden_sizes[at]));
    stages_.push_back(std::move(stage));
  }
}

Tensor ConvNext::run_layer(const ConvNextBlock& layer, int64_t number, const Tensor& x, const RecomputePolicy& policy,
                           const std::string& module, bool training) const {
  using Part = RecomputePolicy::Part;
  const auto mlp = [this, &layer, module, training](const Tensor& in) {
    const ModuleScope scope(module);
    const auto inner = activate(config_.activation, layer.pwconv1.forward(layer.layernorm.forward(in), training));
    return layer.pwconv2.forward(response_norm(inner, layer.grn_weight, layer.grn_bias), training);
  };
  const auto block = [&layer, number, policy, module, mlp](const Tensor& in) {
    const ModuleScope scope(module);
    const auto type = in.scalar_type();
    const auto mixed = kernels::depthwise_conv(in, layer.dwconv_weight.to(type), layer.dwconv_bias.to(type));
    return in + policy.run(Part::kMlp, number, mlp, mixed);
  };
  return policy.run(Part::kBlock, number, block, x.view_as(x));
}

std::vector<Tensor> ConvNext::hidden_states(const Tensor& pixels, const std::vector<int64_t>& states,
                                            const RecomputePolicy& policy, bool training, WeightStream* stream) const {
  VLMTUNE_CHECK(pixels.dim() == 4 && pixels.size(2) == config_.image_size && pixels.size(3) == config_.image_size,
                "pixels of {} x {}, the tower takes {}", pixels.size(2), pixels.size(3), config_.image_size);
  std::vector<Tensor> kept(states.size());
  const auto keep = [&](int64_t index, const Tensor& x) {
    for (size_t s = 0; s < states.size(); ++s)
      if (states[s] == index) kept[s] = x.flatten(1, 2);
  };
  const MemoryScope scope(MemoryCategory::kVisionActivations);
  auto x = [&] {
    const ModuleScope module("vision_tower.embeddings");
    return layernorm_.forward(patch_embeddings_.forward(pixels));  // [N, h, w, D]
  }();
  if (policy.anything() && torch::GradMode::is_enabled()) x = require_input_grad(x);
  keep(0, x);
  int64_t number = 0;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const auto module = fmt::format("vision_tower.layers.{}", i);
    const auto run_stage = [&, &stage = stages_[i]](Tensor in) {
      const ModuleScope named(module);
      if (i > 0) in = stage.downsampling.forward(channels_first(stage.downsampling_norm.forward(in)));
      for (const auto& layer : stage.layers) in = run_layer(layer, number++, in, policy, module, training);
      return in;
    };
    x = streamed(stream, i, x, run_stage);
    keep(static_cast<int64_t>(i) + 1, x);
  }
  return kept;
}

void ConvNext::visit(const std::string& prefix, const TensorVisitor& visitor) {
  patch_embeddings_.visit(prefix + "embeddings.patch_embeddings", visitor);
  layernorm_.visit(prefix + "embeddings.layernorm", visitor);
  visit_linears(prefix, [&](const std::string& name, Linear& linear) { linear.visit(name, visitor); });
  for (size_t i = 0; i < stages_.size(); ++i) {
    const auto stage = fmt::format("{}encoder.stages.{}", prefix, i);
    if (i > 0) {
      stages_[i].downsampling_norm.visit(stage + ".downsampling_layer.0", visitor);
      stages_[i].downsampling.visit(stage + ".downsampling_layer.1", visitor);
    }
    for (size_t k = 0; k < stages_[i].layers.size(); ++k) {
      const auto name = fmt::format("{}.layers.{}", stage, k);
      auto& layer = stages_[i].layers[k];
      visitor(name + ".dwconv.weight", layer.dwconv_weight);
      visitor(name + ".dwconv.bias", layer.dwconv_bias);
      layer.layernorm.visit(name + ".layernorm", visitor);
      visitor(name + ".grn.weight", layer.grn_weight);
      visitor(name + ".grn.bias", layer.grn_bias);
    }
  }
}

void ConvNext::visit_linears(const std::string& prefix, const LinearVisitor& visitor) {
  for (size_t i = 0; i < stages_.size(); ++i)
    for (size_t k = 0; k < stages_[i].layers.size(); ++k) {
      const auto name = fmt::format("{}encoder.stages.{}.layers.{}", prefix, i, k);
      visitor(name + ".pwconv1", stages_[i].layers[k].pwconv1);
      visitor(name + ".pwconv2", stages_[i].layers[k].pwconv2);
    }
}

}  // namespace vlmtune
