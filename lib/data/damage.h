// Damaged rows and pictures: what is wrong with them is said, whatever becomes of them.
#pragma once
#include <optional>
#include <string>

#include "lib/base/errors.h"
#include "lib/base/log.h"

namespace vlmtune {

/// Calls f(); what it says of a damaged row or picture, and nothing where all is well.
template <typename F>
std::optional<std::string> damage_found(const F& f) {
  try {
    f();
    return std::nullopt;
  } catch (const UserError& error) {
    if (error.code() != ExitCode::kInput) throw;
    return error.what();
  }
}

/// Calls f() outside training, which has a budget for damage: here it is named and left out.
template <typename F>
void leaving_out_damage(const F& f) {
  if (const auto damage = damage_found(f)) log_warning("{}; it is left out", *damage);
}

}  // namespace vlmtune
