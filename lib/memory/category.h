// What memory is for.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vlmtune {

enum class MemoryCategory : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,        ///< of the language model, kept for backward or on the way through it
  kVisionActivations,  ///< of the vision tower and the projector
  kLogits,             ///< of the head and the loss
  kKvCache,
  kInputs,
  kTemporary,  ///< gradients of activations, work space, and whatever nobody claims
};

constexpr std::array<std::string_view, 9> kMemoryCategories = {
    "weights", "gradients", "optimizer", "activations", "vision_activations",
    "logits",  "kv_cache",  "inputs",    "temporary"};

constexpr size_t kNumMemoryCategories = kMemoryCategories.size();

/// Bytes of each category, indexed by the enum.
using CategoryBytes = std::array<int64_t, kNumMemoryCategories>;

}  // namespace vlmtune
