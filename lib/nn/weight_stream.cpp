#include "lib/nn/weight_stream.h"

#include "kernels/device.h"
#include "lib/base/files.h"
#include "lib/memory/scope.h"
#include "lib/memory/tracking.h"

namespace vlmtune {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool is_mapped(const Tensor& weight) { return kernels::kernel_device(weight) == torch::kCPU; }

int64_t padded_bytes(const Tensor& weight) { return (static_cast<int64_t>(weight.nbytes()) + 63) / 64 * 64; }

void let_go(const Tensor& weight) {
  if (is_mapped(weight)) {
    memory_accounts().device->add_external(MemoryCategory::kWeights, -static_cast<int64_t>(weight.nbytes()));
    if (weight.is_cpu()) drop_pages(weight.data_ptr(), weight.nbytes());
    return;
  }
  weight.storage().set_data_ptr_noswap({nullptr, weight.device()});
}

/// Identity that takes or releases a block's weights when the graph passes it, in either direction.
struct BlockMark : torch::autograd::Function<BlockMark> {
  static Tensor forward(AutogradContext* context, const Tensor& x, WeightStream* stream, int64_t block, bool begins) {
    context->saved_data["stream"] = reinterpret_cast<int64_t>(stream);
    context->saved_data["block"] = block;
    context->saved_data["begins"] = begins;
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto* stream = reinterpret_cast<WeightStream*>(context->saved_data["stream"].toInt());
    const int64_t block = context->saved_data["block"].toInt();
    if (context->saved_data["begins"].toBool())
      stream->release(static_cast<size_t>(block));
    else
      stream->acquire(static_cast<size_t>(block), block - 1);
    return {gradients[0], Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

void WeightStream::add(size_t block, const std::string& module, const Tensor& on_device, const Tensor& source) {
  if (block >= blocks_.size()) blocks_.resize(block + 1);
  blocks_[block].module = module;
  blocks_[block].weights.push_back({on_device, source});
}

Tensor WeightStream::source_of(const Tensor& tensor) const {
  for (const auto& block : blocks_)
    for (const auto& weight : block.weights)
      if (weight.on_device.is_same(tensor)) return weight.source;
  return tensor;
}

bool WeightStream::is_mapped(const Block& block) const {
  return !block.weights.empty() && vlmtune::is_mapped(block.weights[0].on_device);
}

void WeightStream::fetch(Block& block) {
  if (block.there) return;
  const MemoryScope scope(MemoryCategory::kWeights);
  const ModuleScope module(block.module);
  if (is_mapped(block))
    for (const auto& weight : block.weights)
      memory_accounts().device->add_external(MemoryCategory::kWeights, static_cast<int64_t>(weight.source.nbytes()));
  else if (!block.weights.empty())
    send_block(block);
  block.there = true;
}

Tensor WeightStream::staging_for(const Block& block, Staging& staging) const {
  int64_t bytes = 0;
  for (const auto& weight : block.weights) bytes += padded_bytes(weight.on_device);
  if (staging.last) staging.last->for_host();
  if (!staging.bytes.defined() || staging.bytes.numel() < bytes)
    staging.bytes = empty_on_host({bytes}, torch::kByte, block.weights[0].on_device.device());
  return staging.bytes;
}

void WeightStream::send_block(Block& block) {
  const at::AutoDispatchBelowADInplaceOrView same_values;  // for autograd, which has seen the weights in forward
  Staging* staging = in_file_ ? &staging_[turn_ ^= 1] : nullptr;
  const auto room = staging != nullptr ? staging_for(block, *staging) : Tensor();
  int64_t taken = 0;
  for (const auto& [on_device, source] : block.weights) {
    const auto& storage = on_device.storage();
    storage.set_data_ptr_noswap(c10::GetAllocator(on_device.device().type())->allocate(storage.nbytes()));
    auto from = source;
    if (in_file_) {
      const HostScope host;
      from = room.narrow(0, taken, static_cast<int64_t>(on_device.nbytes()))
                 .view(on_device.scalar_type())
                 .view(on_device.sizes());
      from.copy_(source);
      taken += padded_bytes(on_device);
    }
    block.last = send(from, on_device);
  }
  if (staging != nullptr) staging->last = block.last;
}

void WeightStream::read_ahead(int64_t block) const {
  if (!in_file_ || block < 0 || block >= static_cast<int64_t>(blocks_.size())) return;
  for (const auto& weight : blocks_[static_cast<size_t>(block)].weights)
    if (weight.source.is_cpu()) prefetch_pages(weight.source.data_ptr(), weight.source.nbytes());
}

void WeightStream::acquire(size_t block, int64_t next) {
  if (block >= blocks_.size()) return;
  fetch(blocks_[block]);
  if (const auto& last = blocks_[block].last) last->for_device();
  if (next < 0 || next >= static_cast<int64_t>(blocks_.size())) return;
  // Pages of a file are the kernel's until they are touched. A device of its own gets the next block while this one computes.
  if (is_mapped(blocks_[block])) return read_ahead(next);
  read_ahead(2 * next - static_cast<int64_t>(block));
  fetch(blocks_[static_cast<size_t>(next)]);
}

void WeightStream::release(size_t index) {
  if (index >= blocks_.size() || !blocks_[index].there) return;
  auto& block = blocks_[index];
  const ModuleScope module(block.module);
  if (block.last) block.last->for_device();  // it may have been fetched ahead and not used
  for (const auto& weight : block.weights) let_go(weight.on_device);
  block.there = false;
}

Tensor WeightStream::enter(const Tensor& x, size_t block) {
  acquire(block, static_cast<int64_t>(block) + 1);
  return BlockMark::apply(x, this, static_cast<int64_t>(block), true);
}

Tensor WeightStream::leave(const Tensor& x, size_t block) {
  release(block);
  return BlockMark::apply(x, this, static_cast<int64_t>(block), false);
}

}  // namespace vlmtune
