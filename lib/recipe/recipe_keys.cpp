#include "lib/recipe/recipe_keys.h"

#include <map>

#include "lib/recipe/aliases.h"
#include "lib/recipe/codec.h"
#include "lib/recipe/nearest.h"

namespace vlmtune {
namespace {

using KeyMap = std::map<std::string, std::vector<std::string>, std::less<>>;

/// Collects the keys of the top level and, one level down, of each section.
struct KeyCollector {
  KeyMap& keys;
  std::string section;

  template <typename T>
  void operator()(const Field& field, T&) {
    keys[section].emplace_back(field.key);
    if constexpr (Section<T>) descend(field, *std::make_unique<T>());
  }
  template <typename T>
  void operator()(const Field& field, std::optional<T>&) {
    keys[section].emplace_back(field.key);
    if constexpr (Section<T>) descend(field, *std::make_unique<T>());
  }
  template <typename T>
  void descend(const Field& field, T& inner) {
    if (!section.empty()) return;
    KeyCollector collector{keys, std::string(field.key)};
    visit_fields(collector, inner);
  }
};

const KeyMap& all_keys() {
  static const KeyMap map = [] {
    KeyMap keys;
    Recipe recipe;
    KeyCollector collector{keys, ""};
    visit_fields(collector, recipe);
    return keys;
  }();
  return map;
}

/// Keys that are no settings here, and what to use instead.
struct Hint {
  std::string_view key, text;
};
constexpr Hint kHints[] = {
    {"resume_from_checkpoint", "--resume on the command line"}, {"resume", "--resume on the command line"},
    {"deepspeed", "the sections parallel and memory.offload"},  {"tf32", "precision.compute"},
    {"drop_ratio", "image.token_pruning with a keep_ratio"},
};

}  // namespace

const std::vector<std::string>& section_keys(std::string_view section) {
  static const std::vector<std::string> none;
  const auto found = all_keys().find(section);
  return found == all_keys().end() ? none : found->second;
}

std::string suggest_key(std::string_view key, std::string_view pointer, const std::vector<std::string>& siblings) {
  for (const auto& hint : kHints)
    if (hint.key == key) return fmt::format(", use {}", hint.text);
  if (const auto name = nearest_name(key, siblings); !name.empty()) return fmt::format(", did you mean \"{}\"?", name);
  std::vector<std::string> leaves;  // the same leaf name in another section
  for (const auto& [section, keys] : all_keys())
    if (!section.empty()) leaves.insert(leaves.end(), keys.begin(), keys.end());
  const auto leaf = nearest_name(key, leaves);
  for (const auto& [section, keys] : all_keys())
    for (const auto& candidate : keys)
      if (!leaf.empty() && !section.empty() && candidate == leaf && "/" + section != pointer)
        return fmt::format(", did you mean {}.{}?", section, leaf);
  std::vector<std::string> aliases;
  for (const auto& alias : alias_table()) aliases.emplace_back(alias.name);
  const auto alias = nearest_name(key, aliases);
  return alias.empty() ? "" : fmt::format(", did you mean \"{}\"?", alias);
}

}  // namespace vlmtune
