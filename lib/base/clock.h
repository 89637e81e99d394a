// Time that only goes forward.
#pragma once
#include <chrono>

namespace vlmtune {

/// Seconds since some fixed moment.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace vlmtune
