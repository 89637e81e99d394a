// Says what the memory that is allocated from here on is for. Thread-local, nested, and cheap where nothing is tracked.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/memory/category.h"

namespace vlmtune {

/// Until it ends, new memory belongs to `category`.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static MemoryCategory current();

 private:
  MemoryCategory outer_;
};

/// Until it ends, new memory belongs to the part of the model called `name`, e.g. "layers.3"; the empty name is the rest.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

  static uint16_t current();
  /// The name of a scope's number; numbers go up from 0 (the rest).
  static std::string name(uint16_t number);

 private:
  uint16_t outer_;
};

/// Until it ends, new memory is not counted: a dry run makes what the real run already has.
class UncountedScope {
 public:
  UncountedScope();
  ~UncountedScope();
  UncountedScope(const UncountedScope&) = delete;
  UncountedScope& operator=(const UncountedScope&) = delete;

  static bool active();

 private:
  bool outer_;
};

/// Until it ends, meta tensors stand for memory of the host and count there.
class HostScope {
 public:
  HostScope();
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

  static bool active();

 private:
  bool outer_;
};

/// Until it ends, what happens belongs to the phase `name`, e.g. "forward". Process-wide: all threads are in one phase.
class PhaseScope {
 public:
  explicit PhaseScope(std::string_view name);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  std::string outer_;
};

}  // namespace vlmtune
