#include "lib/pipeline/device.h"

#include <dlfcn.h>

#include <filesystem>

#include "lib/base/errors.h"
#include "lib/memory/tracking.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

void allocated(uint64_t key, int64_t bytes) { memory_accounts().device->allocated(key, bytes); }
void freed(uint64_t key) { memory_accounts().device->freed(key); }

/// Its symbols are everybody's, as LibTorch's libraries expect of each other.
void load(const std::string& library, const Recipe& recipe) {
  if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
    throw usage_error(
        "/hardware: {} needs the device \"{}\", and {} does not load ({}); --set hardware=cpu runs it here",
        recipe.hardware.name, recipe.hardware.device, library, ::dlerror());
}

/// What a loaded plugin exports under the name; null without one.
template <typename Function>
Function exported(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

/// Our own plugin stands beside the program or in its lib folder.
std::string beside_program(const std::string& name) {
  const auto folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const auto& place : {folder, folder.parent_path() / "lib", folder.parent_path() / "kernels"})
    if (fs::exists(place / name)) return (place / name).string();
  return name;
}

}  // namespace

torch::Device open_device(const Recipe& recipe) {
  const auto& name = recipe.hardware.device;
  if (name == "cpu") return torch::kCPU;
  const bool cuda = name == "cuda";
  const char* npu = std::getenv("VLMTUNE_NPU_LIBRARY");
  if (cuda) load("libtorch_cuda.so", recipe);
  load(cuda ? beside_program("libvlmtune_cuda.so") : npu != nullptr ? npu : "libtorch_npu.so", recipe);
  const torch::Device device(cuda ? torch::kCUDA : torch::kPrivateUse1, 0);
  const auto* guard = c10::impl::device_guard_impl_registry[static_cast<size_t>(device.type())].load();
  if (guard == nullptr || guard->deviceCount() == 0)
    throw usage_error("/hardware: {} needs the device \"{}\", and there is none; --set hardware=cpu runs it here",
                      recipe.hardware.name, name);
  MemoryAccounts accounts{std::make_shared<MemoryLedger>(), memory_accounts().host};
  if (const auto read = exported<DeviceStatistics>("vlmtune_device_statistics"))
    accounts.statistics = [read] {
      int64_t values[4];
      read(values);
      return AllocatorStatistics{values[0], values[1], values[2], values[3]};
    };
  set_memory_accounts(accounts);
  if (const auto watch = exported<WatchDevice>("vlmtune_watch_device")) watch(allocated, freed);
  return device;
}

void snapshot_device_when_full(const fs::path& file) {
  if (const auto snapshot = exported<SnapshotWhenFull>("vlmtune_snapshot_when_full")) snapshot(file.c_str());
}

}  // namespace vlmtune
