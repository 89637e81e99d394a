#include "lib/memory/scope.h"

#include <mutex>
#include <vector>

#include "lib/memory/tracking.h"

namespace vlmtune {
namespace {

thread_local MemoryCategory t_category = MemoryCategory::kTemporary;
thread_local uint16_t t_module = 0;
thread_local bool t_uncounted = false, t_host = false;

std::mutex g_mutex;
std::vector<std::string>& names() {
  static std::vector<std::string> names{""};
  return names;
}

uint16_t number_of(std::string_view name) {
  const std::lock_guard lock(g_mutex);
  auto& known = names();
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i] == name) return static_cast<uint16_t>(i);
  known.emplace_back(name);
  return static_cast<uint16_t>(known.size() - 1);
}

}  // namespace

MemoryScope::MemoryScope(MemoryCategory category) : outer_(t_category) { t_category = category; }
MemoryScope::~MemoryScope() { t_category = outer_; }
MemoryCategory MemoryScope::current() { return t_category; }

ModuleScope::ModuleScope(std::string_view name) : outer_(t_module) { t_module = number_of(name); }
ModuleScope::~ModuleScope() { t_module = outer_; }
uint16_t ModuleScope::current() { return t_module; }
std::string ModuleScope::name(uint16_t number) {
  const std::lock_guard lock(g_mutex);
  return names().at(number);
}

UncountedScope::UncountedScope() : outer_(t_uncounted) { t_uncounted = true; }
UncountedScope::~UncountedScope() { t_uncounted = outer_; }
bool UncountedScope::active() { return t_uncounted; }

HostScope::HostScope() : outer_(t_host) { t_host = true; }
HostScope::~HostScope() { t_host = outer_; }
bool HostScope::active() { return t_host; }

PhaseScope::PhaseScope(std::string_view name) : outer_(enter_memory_phase(name)) {}
PhaseScope::~PhaseScope() { enter_memory_phase(outer_); }

}  // namespace vlmtune
