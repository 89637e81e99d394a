#include "lib/nn/attention.h"

#include "kernels/attention.h"
#include "kernels/rope.h"
#include "lib/base/errors.h"
#include "lib/memory/transfer.h"

namespace vlmtune {

AttentionMask decoder_mask(int64_t queries, int64_t past, const std::vector<int64_t>& left_padding, int64_t window,
                           torch::TensorOptions like) {
  const int64_t keys = past + queries;
  const bool padded = std::any_of(left_padding.begin(), left_padding.end(), [](int64_t n) { return n > 0; });
  const bool windowed = window > 0 && window < keys;
  if (!padded && !windowed && (past == 0 || queries == 1)) return {.causal = queries > 1, .bias = {}, .first_keys = {}};
  const auto query = torch::arange(past, keys).view({1, queries, 1});  // slots, padding counted
  const auto key = torch::arange(keys).view({1, 1, keys});
  auto seen = key <= query;  // [1, Tq, Tk]
  if (windowed) seen = seen.logical_and(key > query - window);
  if (padded) {
    const auto first = torch::tensor(left_padding, torch::kLong).view({-1, 1, 1});
    // A query that is padding itself sees its own slot, so that its row of the softmax is not empty.
    seen = seen.logical_and((key >= first).logical_or(key == query));  // [B, Tq, Tk]
  }
  const auto bias = torch::zeros(seen.sizes(), like.device(torch::kCPU))
                        .masked_fill_(seen.logical_not(), -std::numeric_limits<float>::infinity());
  return {.causal = false, .bias = to_device(bias.unsqueeze(1), like.device()), .first_keys = {}};
}

AttentionMask packed_mask(const Tensor& first_keys, int64_t window, torch::Device device) {
  if (window <= 0) return {.causal = true, .bias = {}, .first_keys = to_device(first_keys, device)};
  const auto begin = torch::arange(1 - window, first_keys.size(1) + 1 - window, torch::kInt);
  return {.causal = true, .bias = {}, .first_keys = to_device(torch::maximum(first_keys, begin), device)};
}

Attention::Attention(const AttentionOptions& o)
    : options(o), o_proj(o.num_heads * o.head_dim, o.hidden_size, o.output_bias) {
  if (o.fused != FusedQkv::kNone) {
    VLMTUNE_CHECK(o.num_key_value_heads == o.num_heads, "{} key-value heads in a fused projection of {} heads",
                  o.num_key_value_heads, o.num_heads);
    qkv_proj = Linear(o.hidden_size, 3 * o.num_heads * o.head_dim, o.qkv_bias);
  } else {
    q_proj = Linear(o.hidden_size, o.num_heads * o.head_dim, o.qkv_bias);
    k_proj = Linear(o.hidden_size, o.num_key_value_heads * o.head_dim, o.qkv_bias);
    v_proj = Linear(o.hidden_size, o.num_key_value_heads * o.head_dim, o.qkv_bias);
  }
  if (o.qk_norm_eps == 0) return;
  q_norm = RmsNorm(o.head_dim, o.qk_norm_eps);
  k_norm = RmsNorm(o.head_dim, o.qk_norm_eps);
}

std::array<Tensor, 3> Attention::project(const Tensor& x, bool training) const {
  const int64_t batch = x.size(0), tokens = x.size(1), head_dim = options.head_dim;
  if (options.fused != FusedQkv::kNone) {
    const auto all = qkv_proj.forward(x, training);
    const auto parts = options.fused == FusedQkv::kByHead
                           ? all.view({batch, tokens, options.num_heads, 3, head_dim}).unbind(3)
                           : all.view({batch, tokens, 3, options.num_heads, head_dim}).unbind(2);
    return {parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
  }
  const auto split = [&](const Tensor& y, int64_t heads, const RmsNorm& norm = {}) {
    const auto of_head = y.view({batch, tokens, heads, head_dim});
    return (norm.weight.defined() ? norm.forward(of_head) : of_head).transpose(1, 2);
  };
  return {split(q_proj.forward(x, training), options.num_heads, q_norm),
          split(k_proj.forward(x, training), options.num_key_value_heads, k_norm),
          split(v_proj.forward(x, training), options.num_key_value_heads)};
}

Tensor Attention::forward(const Tensor& x, const RopeTables* rope, const AttentionMask& mask, KvCache* cache,
                          int64_t layer, bool training) const {
  auto [q, k, v] = project(x, training);
  if (rope != nullptr) {
    q = kernels::rope(q, rope->cos, rope->sin);
    k = kernels::rope(k, rope->cos, rope->sin);
    if (rope->query_scale.defined()) q = q * rope->query_scale;
  }
  if (cache != nullptr) std::tie(k, v) = cache->append(layer, k, v);
  const auto y = kernels::attention(q, k, v, mask.causal, mask.bias, mask.first_keys);  // [B, H, T, d]
  return o_proj.forward(y.transpose(1, 2).reshape({x.size(0), x.size(1), o_proj.in_features}), training);
}

void Attention::visit_linears(const std::string& name, const LinearVisitor& visitor) {
  if (options.fused == FusedQkv::kNone) {
    visitor(name + ".q_proj", q_proj);
    visitor(name + ".k_proj", k_proj);
    visitor(name + ".v_proj", v_proj);
  } else {
    visitor(name + "." + options.fused_name, qkv_proj);
  }
  visitor(name + "." + options.output_name, o_proj);
}

void Attention::visit_norms(const std::string& name, const TensorVisitor& visitor) {
  if (options.qk_norm_eps == 0) return;
  q_norm.visit(name + ".q_norm", visitor);
  k_norm.visit(name + ".k_norm", visitor);
}

}  // namespace vlmtune
