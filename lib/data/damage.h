// Damaged rows outside training, which has a budget for them: they are named and left out.
#pragma once
#include <optional>

#include "lib/base/errors.h"
#include "lib/base/log.h"

namespace vlmtune {

/// f(), or nothing where it finds a row or a picture damaged, which a warning then says.
template <typename F>
auto unless_damaged(const F& f) -> std::optional<decltype(f())> {
  try {
    return f();
  } catch (const UserError& error) {
    if (error.code() != ExitCode::kInput) throw;
    log_warning("{}; it is left out", error.what());
    return std::nullopt;
  }
}

}  // namespace vlmtune
