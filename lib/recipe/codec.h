// How each type of setting is read from and written to JSON. Codec<T>:
//   expected(field)      what a user may write, for errors and the reference
//   read(value, field)   the setting, or nothing when `value` is no such thing
//   write(setting)       the JSON form; read(write(x)) == x
#pragma once
#include <cmath>

#include "lib/base/errors.h"
#include "lib/recipe/document.h"
#include "lib/recipe/fields.h"

namespace vlmtune {

/// Structs that have a table of fields: JSON objects.
struct NoVisitor {
  template <typename T>
  void operator()(const Field&, T&) {}
};
template <typename T>
concept Section = requires(NoVisitor& visitor, T& section) {
  visit_fields(visitor, section);
};

template <typename T>
struct Codec;

inline std::string with_range(std::string text, const Range& range) {
  const auto bounds = range.describe();
  return bounds.empty() ? text : text + " " + bounds;
}

inline std::string alternatives(std::string_view pattern) {
  std::string text;
  for (const char c : pattern) text += c == '|' ? std::string(", ") : std::string(1, c);
  return text.find(',') == std::string::npos ? text : "one of " + text;
}

template <>
struct Codec<bool> {
  static std::string expected(const Field&) { return "true or false"; }
  static std::optional<bool> read(const Value& value, const Field&) {
    return value.boolean() != nullptr ? std::optional(*value.boolean()) : std::nullopt;
  }
  static Value write(bool setting) { return setting; }
};

template <>
struct Codec<double> {
  static std::string expected(const Field& field) { return with_range("a number", field.range); }
  static std::optional<double> read(const Value& value, const Field& field) {
    if (value.real() == nullptr && value.integer() == nullptr) return std::nullopt;
    const double number = value.real() != nullptr ? *value.real() : static_cast<double>(*value.integer());
    return field.range.holds(number) ? std::optional(number) : std::nullopt;
  }
  static Value write(double setting) { return setting; }
};

template <>
struct Codec<int64_t> {
  static std::string expected(const Field& field) {
    return field.pattern.empty() ? with_range("an integer", field.range) : alternatives(field.pattern);
  }
  static std::optional<int64_t> read(const Value& value, const Field& field) {
    constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it 1e18 may not be the integer that was meant
    std::optional<int64_t> number;
    if (value.integer() != nullptr) number = *value.integer();
    if (value.real() != nullptr && std::trunc(*value.real()) == *value.real() && std::abs(*value.real()) <= kExact)
      number = static_cast<int64_t>(*value.real());
    if (!number || !field.range.holds(static_cast<double>(*number))) return std::nullopt;
    if (!field.pattern.empty() && !matches_pattern(fmt::format("{}", *number), field.pattern)) return std::nullopt;
    return number;
  }
  static Value write(int64_t setting) { return setting; }
};

template <>
struct Codec<std::string> {
  static std::string expected(const Field& field) {
    return field.pattern.empty() ? "a text" : alternatives(field.pattern);
  }
  static std::optional<std::string> read(const Value& value, const Field& field) {
    if (value.text() == nullptr) return std::nullopt;
    if (!field.pattern.empty() && !matches_pattern(*value.text(), field.pattern)) return std::nullopt;
    return *value.text();
  }
  static Value write(const std::string& setting) { return setting; }
};

template <typename Enum>
requires std::is_enum_v<Enum>
struct Codec<Enum> {
  static std::string expected(const Field&) {
    std::string text;
    for (const auto name : kNames<Enum>) text += (text.empty() ? "one of " : ", ") + std::string(name);
    return text;
  }
  static std::optional<Enum> read(const Value& value, const Field&) {
    if (value.text() == nullptr) return std::nullopt;
    for (size_t i = 0; i < kNames<Enum>.size(); ++i)
      if (kNames<Enum>[i] == *value.text()) return static_cast<Enum>(i);
    return std::nullopt;
  }
  static Value write(Enum setting) { return std::string(kNames<Enum>.at(static_cast<size_t>(setting))); }
};

template <typename T>
struct Codec<std::optional<T>> {
  static std::string expected(const Field& field) { return Codec<T>::expected(field) + ", or null"; }
  static std::optional<std::optional<T>> read(const Value& value, const Field& field) {
    if (value.is_null()) return std::optional<T>();
    auto inner = Codec<T>::read(value, field);
    if (!inner) return std::nullopt;  // spelt out: an empty inner optional would convert to a present null
    return std::optional<std::optional<T>>(std::in_place, std::move(inner));
  }
  static Value write(const std::optional<T>& setting) { return setting ? Codec<T>::write(*setting) : Value(); }
};

template <typename T>
struct Codec<std::vector<T>> {
  static std::string expected(const Field& field) { return "a list, each " + Codec<T>::expected(field); }
  static std::optional<std::vector<T>> read(const Value& value, const Field& field) {
    if (value.array() == nullptr) return std::nullopt;
    std::vector<T> list;
    for (const auto& element : *value.array()) {
      auto item = Codec<T>::read(element, field);
      if (!item) return std::nullopt;
      list.push_back(std::move(*item));
    }
    return list;
  }
  static Value write(const std::vector<T>& setting) {
    Array array;
    for (const auto& item : setting) array.push_back(Codec<T>::write(item));
    return array;
  }
};

template <typename T, size_t N>
struct Codec<std::array<T, N>> {
  static std::string expected(const Field& field) {
    return fmt::format("a list of {}, each {}", N, Codec<T>::expected(field));
  }
  static std::optional<std::array<T, N>> read(const Value& value, const Field& field) {
    const auto list = Codec<std::vector<T>>::read(value, field);
    if (!list || list->size() != N) return std::nullopt;
    std::array<T, N> items{};
    std::copy(list->begin(), list->end(), items.begin());
    return items;
  }
  static Value write(const std::array<T, N>& setting) {
    return Codec<std::vector<T>>::write(std::vector<T>(setting.begin(), setting.end()));
  }
};

template <typename T>
struct Codec<std::map<std::string, T>> {
  static std::string expected(const Field& field) { return "an object of names, each " + Codec<T>::expected(field); }
  static std::optional<std::map<std::string, T>> read(const Value& value, const Field& field) {
    if (value.object() == nullptr) return std::nullopt;
    std::map<std::string, T> map;
    for (const auto& [key, member] : *value.object()) {
      auto item = Codec<T>::read(member, field);
      if (!item) return std::nullopt;
      map.emplace(key, std::move(*item));
    }
    return map;
  }
  static Value write(const std::map<std::string, T>& setting) {
    Object object;
    for (const auto& [key, item] : setting) object[key] = Codec<T>::write(item);
    return object;
  }
};

template <>
struct Codec<TargetModules> {
  static std::string expected(const Field&) {
    return "\"all-linear\", \"regex:...\" (ECMAScript) or a list of module names";
  }
  static std::optional<TargetModules> read(const Value& value, const Field&) {
    constexpr std::string_view kPrefix = "regex:";
    if (value.array() != nullptr) {
      auto names = Codec<std::vector<std::string>>::read(value, {});
      if (!names || names->empty()) return std::nullopt;
      return TargetModules{TargetModules::Kind::kList, std::move(*names), {}};
    }
    if (value.text() == nullptr) return std::nullopt;
    if (*value.text() == "all-linear") return TargetModules{TargetModules::Kind::kAllLinear, {}, {}};
    if (!value.text()->starts_with(kPrefix) || value.text()->size() == kPrefix.size()) return std::nullopt;
    auto regex = value.text()->substr(kPrefix.size());
    if (!is_regex(regex)) return std::nullopt;
    return TargetModules{TargetModules::Kind::kRegex, {}, std::move(regex)};
  }
  static Value write(const TargetModules& setting) {
    if (setting.kind == TargetModules::Kind::kAllLinear) return "all-linear";
    if (setting.kind == TargetModules::Kind::kRegex) return "regex:" + setting.regex;
    return Codec<std::vector<std::string>>::write(setting.names);
  }
};

template <>
struct Codec<LossScale> {
  static std::string expected(const Field& field) { return "\"dynamic\" or " + Codec<double>::expected(field); }
  static std::optional<LossScale> read(const Value& value, const Field& field) {
    if (value.text() != nullptr && *value.text() == "dynamic") return LossScale{};
    const auto number = Codec<double>::read(value, field);
    return number ? std::optional(LossScale{false, *number}) : std::nullopt;
  }
  static Value write(const LossScale& setting) { return setting.dynamic ? Value("dynamic") : Value(setting.value); }
};

template <>
struct Codec<Reserved> {
  static std::string expected(const Field&) { return "null"; }
  static std::optional<Reserved> read(const Value& value, const Field&) {
    return value.is_null() ? std::optional(Reserved{}) : std::nullopt;
  }
  static Value write(const Reserved&) { return {}; }
};

}  // namespace vlmtune
