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

int64_t room_of(const Tensor& weight) { return (static_cast<int64_t>(weight.nbytes()) + 63) / 64 * 64; }

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

void WeightStream::add(size_t block, const std::string& module, const Tensor& on_device, const Tensor& source,
                       bool in_file) {
  if (block >= blocks_.size()) blocks_.resize(block + 1);
  blocks_[block].module = module;
  blocks_[block].weights.push_back({on_device, source, in_file});
}

Tensor WeightStream::source_of(const Tensor& tensor) const {
  for (const auto& block : blocks_)
    for (const auto& weight : block.weights)
      if (weight.on_device.is_same(tensor)) return weight.source;
  return tensor;
}

void WeightStream::fetch(Block& block) {
  if (block.there) return;
  const MemoryScope scope(MemoryCategory::kWeights);
  const ModuleScope module(block.module);
  if (!block.weights.empty() && !is_mapped(block.weights[0].on_device))
    send_block(block);
  else
    for (const auto& weight : block.weights)
      memory_accounts().device->add_external(MemoryCategory::kWeights, static_cast<int64_t>(weight.source.nbytes()));
  block.there = true;
}

Tensor WeightStream::staging_for(const Block& block, Staging& staging) const {
  int64_t bytes = 0;
  for (const auto& weight : block.weights)
    if (weight.in_file) bytes += room_of(weight.on_device);
  if (staging.last) staging.last->for_host();
  if (!staging.bytes.defined() || staging.bytes.numel() < bytes)
    staging.bytes = empty_on_host({bytes}, torch::kByte, block.weights[0].on_device.device());
  return staging.bytes;
}

void WeightStream::send_block(Block& block) {
  const torch::NoGradGuard no_grad;
  auto& staging = staging_[turn_ ^= 1];
  const auto room = staging_for(block, staging);
  int64_t taken = 0;
  for (const auto& [on_device, source, in_file] : block.weights) {
    const auto& storage = on_device.storage();
    storage.set_data_ptr_noswap(c10::GetAllocator(on_device.device().type())->allocate(storage.nbytes()));
    if (!in_file) {
      block.last = send(source, on_device);
      continue;
    }
    const HostScope host;
    const auto passing = room.narrow(0, taken, static_cast<int64_t>(on_device.nbytes()))
                             .view(on_device.scalar_type())
                             .view(on_device.sizes());
    passing.copy_(source);
    taken += room_of(on_device);
    block.last = staging.last = send(passing, on_device);
  }
}

void WeightStream::acquire(size_t block, int64_t next) {
  if (block >= blocks_.size()) return;
  fetch(blocks_[block]);
  if (const auto& last = blocks_[block].last) last->for_device();
  if (next < 0 || next >= static_cast<int64_t>(blocks_.size())) return;
  auto& ahead = blocks_[static_cast<size_t>(next)];
  for (const auto& weight : ahead.weights)
    if (weight.source.is_cpu()) prefetch_pages(weight.source.data_ptr(), weight.source.nbytes());
  // A device of its own copies while this block computes; pages of a file are the kernel's until they are touched.
  if (!ahead.weights.empty() && !is_mapped(ahead.weights[0].on_device)) fetch(ahead);
}

void WeightStream::release(size_t block) {
  if (block >= blocks_.size() || !blocks_[block].there) return;
  const ModuleScope module(blocks_[block].module);
  for (const auto& weight : blocks_[block].weights) let_go(weight.on_device);
  blocks_[block].there = false;
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
