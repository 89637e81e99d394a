#include "lib/base/bytes.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace vlmtune {

std::optional<int64_t> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double factor = 1;
  if (!unit.empty() && unit != "B") {
    static constexpr std::string_view kLetters = "kMGT";
    char letter = unit.front();
    if (letter == 'K') letter = 'k';
    const auto power = kLetters.find(letter);
    if (power == std::string_view::npos) return std::nullopt;
    unit.remove_prefix(1);
    const bool binary = !unit.empty() && unit.front() == 'i';
    if (binary) unit.remove_prefix(1);
    if (unit != "B") return std::nullopt;
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  if (value * factor > 9e18) return std::nullopt;
  return std::llround(value * factor);
}

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 999.5 && unit < 5) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

}  // namespace vlmtune
