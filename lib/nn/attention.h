// Multi-head attention with grouped key-value heads, for decoders (rotary, causal, cached) and encoders (plain).
#pragma once
#include <array>

#include "lib/nn/kv_cache.h"
#include "lib/nn/linear.h"
#include "lib/nn/norm.h"
#include "lib/nn/rope.h"

namespace vlmtune {

/// Which keys a query sees.
struct AttentionMask {
  bool causal = false;  ///< query t sees keys 0..t; only when queries and keys are the same tokens
  Tensor bias;          ///< [B or 1, 1, Tq, Tk] added to the scores (0 or -inf), in the queries' type; undefined: none
  Tensor first_keys;    ///< [B, Tq] int32: the first key that each query sees; undefined: key 0
};

/// The mask of a decoder call: `queries` new tokens after `past` cached ones. Row b ignores its first left_padding[b]
/// keys; with a window, a query sees the `window` last keys including itself. No bias is made where `causal` says it all.
AttentionMask decoder_mask(int64_t queries, int64_t past, const std::vector<int64_t>& left_padding, int64_t window,
                           torch::TensorOptions like);

/// The mask of rows with several samples: `first_keys` [B, T] (int32, on the CPU) says where each token's sample starts. A
/// window makes them start later.
AttentionMask packed_mask(const Tensor& first_keys, int64_t window, torch::Device device);

/// One layer that makes queries, keys and values, and how they lie in its output.
enum class FusedQkv {
  kNone,    ///< three layers
  kByPart,  ///< all queries, all keys, all values
  kByHead,  ///< query, key and value of the first head, of the second...
};

struct AttentionOptions {
  int64_t hidden_size = 0, num_heads = 0, num_key_value_heads = 0, head_dim = 0;
  bool qkv_bias = false, output_bias = false;
  double qk_norm_eps = 0;  ///< RMS norms of each head's queries and keys; 0: none
  std::string output_name = "o_proj";
  FusedQkv fused = FusedQkv::kNone;  ///< only with as many key-value heads as heads
  std::string fused_name = {};
};

struct Attention {
  AttentionOptions options;
  Linear q_proj, k_proj, v_proj, o_proj;
  Linear qkv_proj;         // in place of the first three
  RmsNorm q_norm, k_norm;  // [d]

  Attention() = default;
  explicit Attention(const AttentionOptions& options);
  /// x [B, T, D] -> [B, T, D]; rope and cache may be null.
  Tensor forward(const Tensor& x, const RopeTables* rope, const AttentionMask& mask, KvCache* cache, int64_t layer,
                 bool training) const;
  void visit_linears(const std::string& name, const LinearVisitor& visitor);
  void visit_norms(const std::string& name, const TensorVisitor& visitor);

 private:
  std::array<Tensor, 3> project(const Tensor& x, bool training) const;  // [B, H, T, d], twice [B, K, T, d]
};

}  // namespace vlmtune
