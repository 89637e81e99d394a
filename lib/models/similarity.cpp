#include "lib/models/similarity.h"

#include <cmath>

#include "lib/memory/transfer.h"

namespace vlmtune {
namespace {

constexpr const char *kProjection = "model.similarity_head.text_projection",
                     *kScale = "model.similarity_head.logit_scale";

}  // namespace

SimilarityHead::SimilarityHead(int64_t width)
    : text_projection(width, width, /*with_bias=*/false), logit_scale(declared({1})) {}

Tensor SimilarityHead::embed_texts(const Tensor& states) const { return unit_vectors(text_projection.forward(states)); }

void SimilarityHead::visit(const TensorVisitor& visitor) {
  text_projection.visit(kProjection, visitor);
  visitor(kScale, logit_scale);
}

Tensor unit_vectors(const Tensor& x) { return x / x.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12); }

std::optional<Tensor> fresh_similarity_tensor(const std::string& name, torch::IntArrayRef shape, torch::Device device) {
  if (name == kScale) return torch::full(shape, -std::log(0.07), device);
  if (name == std::string(kProjection) + ".weight") return torch::eye(shape[0], device);
  return std::nullopt;
}

Tensor contrastive_loss(const Tensor& pictures, const Tensor& texts, const Tensor& logit_scale) {
  const auto logits = torch::matmul(pictures, texts.t()) * logit_scale.to(torch::kFloat).exp().clamp_max(100);
  const auto own = to_device(torch::arange(logits.size(0)), logits.device());
  return (torch::cross_entropy_loss(logits, own) + torch::cross_entropy_loss(logits.t(), own)) / 2;
}

}  // namespace vlmtune
