#include "lib/models/first_qwen_vl/vision.h"

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "lib/base/errors.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"

namespace vlmtune {
namespace {

constexpr const char* kPrefix = "transformer.visual.";
constexpr double kNormEps = 1e-6;

}  // namespace

Resampler::Resampler(const FirstQwenVlVisionConfig& c)
    : num_heads(c.num_heads),
      query(declared({c.num_queries, c.hidden_size})),
      pos_embed(declared({c.num_queries, c.hidden_size})),
      kv_proj(c.vit.hidden_size, c.hidden_size, false),
      out_proj(c.hidden_size, c.hidden_size, true),
      in_proj_weight(declared({3 * c.hidden_size, c.hidden_size})),
      in_proj_bias(declared({3 * c.hidden_size})),
      ln_q(c.hidden_size, kNormEps),
      ln_kv(c.hidden_size, kNormEps) {}

Tensor Resampler::forward(const Tensor& patches) const {
  const auto type = patches.scalar_type();
  const int64_t pictures = patches.size(0), width = query.size(1);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(patches.size(1))));
  const auto values = ln_kv.forward(kv_proj.forward(patches));                            // [N, P, D]
  const auto keys = values + resized_positions(pos_embed, side).to(type);                 // [N, P, D]
  const auto queries = (ln_q.forward(query.to(type)) + pos_embed.to(type)).unsqueeze(0);  // [1, Q, D]
  const auto weights = in_proj_weight.to(type).chunk(3), biases = in_proj_bias.to(type).chunk(3);
  const auto heads = [&](const Tensor& x, size_t part) {  // [.., H, tokens, d]
    return kernels::linear(x, weights[part], biases[part]).unflatten(-1, {num_heads, -1}).transpose(1, 2);
  };
  const auto q = heads(queries, 0);
  const auto y = kernels::attention(q.expand({pictures, -1, -1, -1}), heads(keys, 1), heads(values, 2), false, {});
  return out_proj.forward(y.transpose(1, 2).reshape({pictures, -1, width}));
}

void Resampler::visit(const std::string& name, const TensorVisitor& visitor) {
  visitor(name + ".query", query);
  visitor(name + ".pos_embed", pos_embed);
  visitor(name + ".attn.in_proj_weight", in_proj_weight);
  visitor(name + ".attn.in_proj_bias", in_proj_bias);
  visit_linears(name, [&](const std::string& linear_name, Linear& linear) { linear.visit(linear_name, visitor); });
  ln_q.visit(name + ".ln_q", visitor);
  ln_kv.visit(name + ".ln_kv", visitor);
}

void Resampler::visit_linears(const std::string& name, const LinearVisitor& visitor) {
  visitor(name + ".kv_proj", kv_proj);
  visitor(name + ".attn.out_proj", out_proj);
}

FirstQwenVlVision::FirstQwenVlVision(const FirstQwenVlVisionConfig& config, VlmParts parts)
    : config_(config),
      ln_post_(config.hidden_size, kNormEps),
      proj_(declared({config.hidden_size, config.hidden_size})) {
  if (parts != VlmParts::kWithoutTower) vit_ = std::make_unique<Vit>(config_.vit, config_.vit.num_hidden_layers);
  if (parts != VlmParts::kTower) resampler_ = Resampler(config_);
}

Tensor FirstQwenVlVision::tower(const Tensor& pixels, torch::ScalarType type, const TrainingMode& mode) const {
  VLMTUNE_CHECK(vit_ != nullptr, "pixels for a model without vision tower");
  const auto cast = [&] {
    const MemoryScope inputs(MemoryCategory::kInputs);
    return pixels.to(type);
  }();
  return vit_->hidden_states(to_device(cast, vit_->device()), {config_.vit.num_hidden_layers},
                             mode.vision_checkpointing, mode.training, stream.get())[0];
}

ImageFeatures FirstQwenVlVision::project(const Tensor& features, const std::vector<PictureShape>&) const {
  const ModuleScope module("multi_modal_projector");
  const auto tokens = ln_post_.forward(resampler_->forward(features)).flatten(0, 1);  // [N * Q, D]
  return {kernels::linear(tokens, proj_.to(tokens.scalar_type()).t(), {})};
}

void FirstQwenVlVision::visit(const TensorVisitor& visitor) {
  const std::string prefix = kPrefix;
  if (vit_) vit_->visit(prefix, visitor);
  if (resampler_) resampler_->visit(prefix + "attn_pool", visitor);
  ln_post_.visit(prefix + "ln_post", visitor);
  visitor(prefix + "proj", proj_);
}

void FirstQwenVlVision::visit_linears(const LinearVisitor& visitor) {
  const std::string prefix = kPrefix;
  if (vit_) vit_->visit_linears(prefix, visitor);
  if (resampler_) resampler_->visit_linears(prefix + "attn_pool", visitor);
}

}  // namespace vlmtune
