// Weights that are on the device only while their block computes (L2L, Pudipeddi et al. 2020, arXiv 2002.05645; ZeRO-Infinity,
// Rajbhandari et al. 2021, arXiv 2104.07857): only frozen ones, which nobody writes.
#pragma once
#include <array>
#include <optional>

#include "lib/memory/transfer.h"
#include "lib/nn/types.h"

namespace vlmtune {

/// The streamed weights of one stack of blocks. Where the CPU computes they are looked at in their mapped file, and leaving a
/// block lets go of their pages; elsewhere they are copied from the host, those of a file by way of pinned memory, and leaving
/// frees the copy. The next block is read ahead, forward and backward.
class WeightStream {
 public:
  /// `in_file`: sources are a mapped file's, and not copies of their own on the host.
  explicit WeightStream(bool in_file) : in_file_(in_file) {}

  /// One weight of a block. `on_device` is what the block computes with, a tensor without memory until the block is entered;
  /// where the CPU computes it is `source` itself. `module` is whose memory it is.
  void add(size_t block, const std::string& module, const Tensor& on_device, const Tensor& source);

  /// What a streamed weight is read from; any other tensor is its own source.
  Tensor source_of(const Tensor& tensor) const;

  /// x itself, as a mark in the graph: from `enter` to `leave` of a block its weights are there, and in backward from the
  /// one of `leave` to the one of `enter`.
  Tensor enter(const Tensor& x, size_t block);
  Tensor leave(const Tensor& x, size_t block);

  void acquire(size_t block, int64_t next);
  void release(size_t block);

 private:
  struct Weight {
    Tensor on_device, source;
  };
  struct Block {
    std::string module;
    std::vector<Weight> weights;
    bool there = false;
    std::optional<Arriving> last = {};  ///< of the weights that are sent
  };
  /// Pinned memory for one block.
  struct Staging {
    Tensor bytes;
    std::optional<Arriving> last = {};  ///< that was sent from here
  };
  void fetch(Block& block);
  void send_block(Block& block);
  /// Room for the block's weights.
  Tensor staging_for(const Block& block, Staging& staging) const;
  bool is_mapped(const Block& block) const;
  void read_ahead(int64_t block) const;
  bool in_file_;
  std::vector<Block> blocks_;
  std::array<Staging, 2> staging_;  ///< taken in turns, so that the host writes into one while the other is read
  size_t turn_ = 0;
};

/// block(x), between the marks of a stream if there is one.
template <typename F>
Tensor streamed(WeightStream* stream, size_t index, const Tensor& x, const F& block) {
  return stream != nullptr ? stream->leave(block(stream->enter(x, index)), index) : block(x);
}

}  // namespace vlmtune
