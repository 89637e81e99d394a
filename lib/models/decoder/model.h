// The Llama-like decoder: embeddings, pre-norm blocks of attention and gated MLP, final norm. The output head is apart.
#pragma once
#include "kernels/embedding.h"
#include "lib/models/decoder/config.h"
#include "lib/nn/attention.h"
#include "lib/nn/mlp.h"
#include "lib/nn/norm.h"
#include "lib/nn/recompute.h"
#include "lib/nn/weight_stream.h"

namespace vlmtune {

struct DecoderBlock {
  RmsNorm input_layernorm, post_attention_layernorm;
  Attention self_attn;
  GatedMlp mlp;
  bool sliding = false;
};

/// Features that are added at some tokens to what leaves the first blocks (Meng et al. 2024, arXiv 2406.04334).
struct DeepStack {
  Tensor slots;                  ///< [S] int64: the tokens, counted through all rows
  std::vector<Tensor> features;  ///< [S, D] each, behind block 0, 1, ...
};

/// What a forward call needs beside the embeddings.
struct DecoderCall {
  Tensor positions;                   ///< [B or 1, T], or [3, B, T] of M-RoPE; int64 on the CPU
  std::vector<int64_t> left_padding;  ///< padding slots before each row's first token; empty: none
  Tensor first_keys = {};  ///< [B, T] int32 on the CPU, as in AttentionMask; undefined where no row is packed
  DeepStack deepstack = {};
  KvCache* cache = nullptr;
  bool training = false;           ///< dropout on
  RecomputePolicy recompute = {};  ///< in backward
};

class Decoder {
 public:
  explicit Decoder(const DecoderConfig& config);

  /// ids [B, T] (int64) -> [B, T, D] in `type`. Ids outside the vocabulary (image slots) become id 0.
  Tensor embed(const Tensor& ids, torch::ScalarType type) const;
  /// embeds [B, T, D] -> hidden states after the final norm [B, T, D].
  Tensor forward(Tensor embeds, const DecoderCall& call) const;

  void visit(const std::string& prefix, const TensorVisitor& visitor);
  void visit_linears(const std::string& prefix, const LinearVisitor& visitor);
  const DecoderConfig& config() const { return config_; }

  Tensor embed_tokens;                   // [V, D]
  kernels::TiedGradient tied_gradient;   ///< between head and embedding, where they are one
  std::unique_ptr<WeightStream> stream;  ///< of the blocks' weights, if they are not kept

 private:
  DecoderConfig config_;
  std::vector<DecoderBlock> layers_;
  RmsNorm norm_;
};

}  // namespace vlmtune
