#include "lib/recipe/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

namespace vlmtune {

std::string_view command_name(Command command) {
  static constexpr std::string_view kCommands[] = {"pretrain", "lora-finetune", "infer"};
  return kCommands[static_cast<int>(command)];
}

template <typename Enum>
std::string_view recipe_name(Enum value) {
  return kNames<Enum>.at(static_cast<size_t>(value));
}
template std::string_view recipe_name(DataFormat);
template std::string_view recipe_name(Truncation);
template std::string_view recipe_name(QuantizationType);
template std::string_view recipe_name(Precision);
template std::string_view recipe_name(MemoryPlan);
template std::string_view recipe_name(OnOom);
template std::string_view recipe_name(OptimizerName);
template std::string_view recipe_name(ScheduleType);
template std::string_view recipe_name(ParallelStrategy);
template std::string_view recipe_name(Retention);
template std::string_view recipe_name(Layout);
template std::string_view recipe_name(KvCacheType);
template std::string_view recipe_name(LogitsKept);

std::string Range::describe() const {
  const bool has_low = low > -kNoLimit, has_high = high < kNoLimit;
  if (has_low && has_high) return fmt::format("in {}{}, {}{}", low_open ? '(' : '[', low, high, high_open ? ')' : ']');
  if (has_low) return fmt::format("{} {}", low_open ? "above" : "of at least", low);
  if (has_high) return fmt::format("{} {}", high_open ? "below" : "of at most", high);
  return {};
}

bool Range::holds(double value) const {
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

namespace {

/// Whether `text` is a decimal number from 1, short enough for any later use.
bool is_count(std::string_view text) {
  return !text.empty() && text.size() <= 9 && text.front() != '0' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool matches_one(std::string_view text, std::string_view choice) {
  const auto hole = choice.find('N');
  if (hole == std::string_view::npos) return text == choice;
  const auto head = choice.substr(0, hole), tail = choice.substr(hole + 1);
  return text.size() > head.size() + tail.size() && text.starts_with(head) && text.ends_with(tail) &&
         is_count(text.substr(head.size(), text.size() - head.size() - tail.size()));
}

}  // namespace

bool matches_pattern(std::string_view text, std::string_view pattern) {
  for (;;) {
    const auto bar = pattern.find('|');
    if (matches_one(text, pattern.substr(0, bar))) return true;
    if (bar == std::string_view::npos) return false;
    pattern.remove_prefix(bar + 1);
  }
}

bool is_regex(const std::string& text) {
  try {
    const std::regex regex(text);
    return true;
  } catch (const std::regex_error&) {
    return false;
  }
}

}  // namespace vlmtune
