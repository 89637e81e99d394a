// The account of memory: categories, modules, phases and their peaks; and what LibTorch's tensors write into it.
#include "lib/memory/ledger.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "lib/memory/scope.h"
#include "lib/memory/tracking.h"

namespace vlmtune {
namespace {

int64_t of(const CategoryBytes& bytes, MemoryCategory category) { return bytes[static_cast<size_t>(category)]; }

const MemoryLedger::Phase& phase_of(const std::vector<MemoryLedger::Phase>& phases, const std::string& name) {
  for (const auto& phase : phases)
    if (phase.name == name) return phase;
  throw std::out_of_range(name);
}

TEST(MemoryLedger, PeaksBelongToPhasesCategoriesAndModules) {
  MemoryLedger ledger;
  ledger.enter_phase("load");
  {
    const MemoryScope weights(MemoryCategory::kWeights);
    const ModuleScope module("layers.0");
    ledger.allocated(1, 100);
  }
  ledger.enter_phase("forward");
  {
    const MemoryScope activations(MemoryCategory::kActivations);
    ledger.allocated(2, 40);
    ledger.allocated(3, 20);
  }
  ledger.freed(3);
  ledger.allocated(4, 7);
  ledger.move(4, MemoryCategory::kGradients);
  ledger.enter_phase("load");
  ledger.add_external(MemoryCategory::kWeights, 1000);
  const auto phases = ledger.phases();
  const auto& forward = phase_of(phases, "forward").peak;
  EXPECT_EQ(forward.bytes, 160);
  EXPECT_EQ(of(forward.by_category, MemoryCategory::kActivations), 60);
  EXPECT_EQ(of(forward.by_category, MemoryCategory::kWeights), 100);
  EXPECT_EQ(of(forward.by_module.at("layers.0"), MemoryCategory::kWeights), 100);
  EXPECT_EQ(of(forward.by_module.at(""), MemoryCategory::kActivations), 60);
  const auto& load = phase_of(phases, "load").peak;
  EXPECT_EQ(load.bytes, 1147);
  EXPECT_EQ(of(load.by_category, MemoryCategory::kGradients), 7);
  EXPECT_EQ(ledger.bytes(), 1147);
  ledger.freed(99);  // from before the account began
  EXPECT_EQ(ledger.bytes(), 1147);
}

TEST(MemoryLedger, WindowsForgetEarlierPeaks) {
  MemoryLedger ledger;
  ledger.allocated(1, 500);
  ledger.freed(1);
  ledger.allocated(2, 10);
  EXPECT_EQ(ledger.window_peak(), 500);
  ledger.reset_window();
  EXPECT_EQ(ledger.window_peak(), 10);
}

TEST(MemoryLedger, CountsWholeBlocksOfASimulatedAllocator) {
  MemoryLedger ledger(CachingAllocatorOptions{});
  ledger.allocated(1, 1);
  EXPECT_EQ(ledger.bytes(), 512);
  EXPECT_EQ(ledger.simulator()->reserved_bytes(), 2 << 20);
  ledger.freed(1);
  EXPECT_EQ(ledger.bytes(), 0);
}

TEST(MemoryLedger, ScopesNestAndBelongToAThread) {
  const MemoryScope outer(MemoryCategory::kLogits);
  {
    const MemoryScope inner(MemoryCategory::kInputs);
    EXPECT_EQ(MemoryScope::current(), MemoryCategory::kInputs);
    std::thread([] { EXPECT_EQ(MemoryScope::current(), MemoryCategory::kTemporary); }).join();
  }
  EXPECT_EQ(MemoryScope::current(), MemoryCategory::kLogits);
}

TEST(MemoryTracking, CountsTensorsOfTheCpuAndOfTheMetaDevice) {
  const auto device = std::make_shared<MemoryLedger>(), host = std::make_shared<MemoryLedger>();
  set_memory_accounts({device, host});
  {
    const auto real = torch::zeros({10, 10});
    const auto meta = torch::zeros({100, 100}, torch::kMeta);
    EXPECT_EQ(host->bytes(), 400);
    EXPECT_EQ(device->bytes(), 40000);
    const MemoryScope scope(MemoryCategory::kActivations);
    const auto view = meta.view({10000});
    EXPECT_EQ(device->bytes(), 40000);
    claim_memory(view, MemoryCategory::kGradients);
    const PhaseScope phase("later");
    const auto more = torch::matmul(meta, meta);
    EXPECT_EQ(device->bytes(), 80000);
  }
  EXPECT_EQ(device->bytes(), 0);
  EXPECT_EQ(host->bytes(), 0);
  const auto phases = device->phases();
  const auto& later = phase_of(phases, "later").peak;
  EXPECT_EQ(of(later.by_category, MemoryCategory::kGradients), 40000);
  EXPECT_EQ(of(later.by_category, MemoryCategory::kActivations), 40000);
}

/// Tensors that live on from an earlier account do not disturb the next one.
TEST(MemoryTracking, AccountsCanBeChanged) {
  auto old = torch::zeros({100}, torch::kMeta);
  const auto ledger = std::make_shared<MemoryLedger>();
  set_memory_accounts({ledger, ledger});
  old = torch::Tensor();
  EXPECT_EQ(ledger->bytes(), 0);
  {
    const auto next = torch::zeros({5}, torch::kMeta);
    EXPECT_EQ(ledger->bytes(), 20);
  }
  EXPECT_EQ(ledger->bytes(), 0);
}

}  // namespace
}  // namespace vlmtune

int main(int argc, char** argv) {
  vlmtune::track_allocations();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
