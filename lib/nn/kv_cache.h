// Keys and values of the tokens seen so far, one pair of growing buffers a layer.
#pragma once
#include <vector>

#include "lib/nn/types.h"

namespace vlmtune {

class KvCache {
 public:
  /// How the buffers grow: with room ahead, or to what is needed and not a token more, as transformers' cache does, which
  /// is concatenated anew for every token.
  enum class Growth { kAhead, kExact };

  explicit KvCache(int64_t num_layers, Growth growth = Growth::kAhead)
      : layers_(static_cast<size_t>(num_layers)), growth_(growth) {}

  /// Appends k and v [B, K, T, d] to a layer and returns all its keys and values [B, K, length + T, d].
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& k, const Tensor& v);
  /// Tokens held; the same for every layer between two forward passes.
  int64_t length() const { return layers_.empty() ? 0 : layers_.front().length; }
  /// Makes room for `tokens` in all, so that decoding does not grow the buffers step by step.
  void reserve(int64_t tokens) { reserved_ = tokens; }
  int64_t reserved() const { return reserved_; }
  /// The length by which the rotary frequencies of the first tokens were chosen, for kinds that keep them.
  int64_t rope_length = 0;
  /// Counts `tokens` more as held, whatever their values: a dry run's way to the last token.
  void advance(int64_t tokens);
  /// Forgets everything after the first `tokens` tokens.
  void truncate(int64_t tokens);

 private:
  struct Layer {
    Tensor keys, values;  // [B, K, capacity, d]
    int64_t length = 0;
  };
  void make_room(Layer& layer, const Tensor& like, int64_t tokens);

  std::vector<Layer> layers_;
  int64_t reserved_ = 0;
  Growth growth_;
};

}  // namespace vlmtune
