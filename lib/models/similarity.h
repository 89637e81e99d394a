// How well a picture and a text fit: the cosine of the picture's mean projected feature and of a projection of the text's mean
// hidden state, trained as CLIP is (Radford et al. 2021, arXiv 2103.00020).
#pragma once
#include <optional>

#include "lib/nn/linear.h"

namespace vlmtune {

struct SimilarityHead {
  /// `width`: the language model's.
  explicit SimilarityHead(int64_t width);

  Linear text_projection;  ///< [D, D]
  Tensor logit_scale;      ///< [1], the logarithm of what cosines are multiplied with

  /// Mean states of texts [N, D] (fp32) -> unit vectors.
  Tensor embed_texts(const Tensor& states) const;
  void visit(const TensorVisitor& visitor);
};

/// Vectors [N, D] divided by their length.
Tensor unit_vectors(const Tensor& x);

/// Initial values: a projection that changes nothing, and CLIP's temperature of 0.07. Nothing for other names.
std::optional<Tensor> fresh_similarity_tensor(const std::string& name, torch::IntArrayRef shape, torch::Device device);

/// Mean cross-entropy of finding the text of each picture and the picture of each text among the N; unit vectors [N, D], fp32.
/// The scale is at most 100, as in CLIP. An fp32 scalar.
Tensor contrastive_loss(const Tensor& pictures, const Tensor& texts, const Tensor& logit_scale);

}  // namespace vlmtune
