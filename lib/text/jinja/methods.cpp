// Methods of strings, lists and dictionaries; attribute and item access; global functions.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <unordered_map>

#include "lib/text/jinja/builtins.h"
#include "lib/text/unicode.h"

namespace vlmtune::jinja {
namespace {

using TextMethod = Value (*)(const Text&, const Arguments&);

std::string text_or(const Arguments& arguments, size_t index, const char* name, const char* fallback) {
  const auto* value = arguments.find(index, name);
  return value && !value->is_none() ? value->as_text().bytes() : fallback;
}

long count_or(const Arguments& arguments, size_t index, const char* name) {
  const auto* value = arguments.find(index, name);
  return value ? static_cast<long>(value->as_integer()) : -1;
}

const Value& required(const Arguments& arguments, size_t index) {
  if (index >= arguments.positional.size()) throw Error(fmt::format("a method needs {} arguments", index + 1));
  return arguments.positional[index];
}

Value list_of(std::vector<Text> parts) {
  List items;
  for (auto& part : parts) items.push_back(Value::text(std::move(part)));
  return Value::list(std::move(items));
}

template <bool left, bool right>
Value strip_method(const Text& text, const Arguments& arguments) {
  return Value::text(strip(text, text_or(arguments, 0, "chars", ""), left, right));
}

bool matches_end(const Text& text, const Value& affix, bool at_start) {
  if (affix.is_sequence()) {
    return std::any_of(affix.as_list().begin(), affix.as_list().end(),
                       [&](const Value& one) { return matches_end(text, one, at_start); });
  }
  const auto& bytes = affix.as_text().bytes();
  return at_start ? text.bytes().starts_with(bytes) : text.bytes().ends_with(bytes);
}

int64_t code_points(const Text& text, size_t byte) { return static_cast<int64_t>(text.substr(0, byte).length()); }

Value find_in(const Text& text, const Arguments& arguments, bool from_right) {
  const auto& part = required(arguments, 0).as_text().bytes();
  auto at = from_right ? text.bytes().rfind(part) : text.bytes().find(part);
  return Value::integer(at == std::string::npos ? -1 : code_points(text, at));
}

Value count_in(const Text& text, const Arguments& arguments) {
  const auto& part = required(arguments, 0).as_text().bytes();
  if (part.empty()) return Value::integer(static_cast<int64_t>(text.length()) + 1);
  int64_t count = 0;
  for (size_t at = text.bytes().find(part); at != std::string::npos; at = text.bytes().find(part, at + part.size()))
    ++count;
  return Value::integer(count);
}

Value join_items(const Text& separator, const Arguments& arguments) {
  Text out;
  bool first = true;
  for (const auto& item : required(arguments, 0).iterate()) {
    if (!first) out.append(separator);
    first = false;
    out.append(item.as_text());
    if (out.size() > kMaxTextBytes) throw Error("a text becomes too long");
  }
  return Value::text(std::move(out));
}

Value partition(const Text& text, const Arguments& arguments) {
  const auto& separator = required(arguments, 0).as_text();
  auto at = text.bytes().find(separator.bytes());
  if (at == std::string::npos) return Value::tuple({Value::text(text), Value::text(""), Value::text("")});
  return Value::tuple({Value::text(text.substr(0, at)), Value::text(separator),
                       Value::text(text.substr(at + separator.size(), text.size()))});
}

Value remove_affix(const Text& text, const Arguments& arguments, bool prefix) {
  const auto& affix = required(arguments, 0).as_text();
  if (!matches_end(text, Value::text(affix), prefix)) return Value::text(text);
  return Value::text(prefix ? text.substr(affix.size(), text.size()) : text.substr(0, text.size() - affix.size()));
}

bool all_characters(const Text& text, bool (*is)(char32_t)) {
  for (size_t at = 0; at < text.size();) {
    if (!is(next_code_point(text.bytes(), at))) return false;
  }
  return !text.empty();
}

const std::unordered_map<std::string, TextMethod>& text_methods() {
  static const std::unordered_map<std::string, TextMethod> table = {
      {"strip", strip_method<true, true>},
      {"lstrip", strip_method<true, false>},
      {"rstrip", strip_method<false, true>},
      {"split",
       [](const Text& t, const Arguments& a) {
         return list_of(split(t, text_or(a, 0, "sep", ""), count_or(a, 1, "maxsplit")));
       }},
      {"rsplit",
       [](const Text& t, const Arguments& a) {
         return list_of(rsplit(t, text_or(a, 0, "sep", ""), count_or(a, 1, "maxsplit")));
       }},
      {"splitlines", [](const Text& t, const Arguments&) { return list_of(splitlines(t)); }},
      {"startswith",
       [](const Text& t, const Arguments& a) { return Value::boolean(matches_end(t, required(a, 0), true)); }},
      {"endswith",
       [](const Text& t, const Arguments& a) { return Value::boolean(matches_end(t, required(a, 0), false)); }},
      {"replace",
       [](const Text& t, const Arguments& a) {
         return Value::text(
             replace(t, required(a, 0).as_text().bytes(), required(a, 1).as_text(), count_or(a, 2, "count")));
       }},
      {"upper", [](const Text& t, const Arguments&) { return Value::text(change_case(t, Case::kUpper)); }},
      {"lower", [](const Text& t, const Arguments&) { return Value::text(change_case(t, Case::kLower)); }},
      {"title", [](const Text& t, const Arguments&) { return Value::text(change_case(t, Case::kTitle)); }},
      {"capitalize", [](const Text& t, const Arguments&) { return Value::text(change_case(t, Case::kCapitalize)); }},
      {"find", [](const Text& t, const Arguments& a) { return find_in(t, a, false); }},
      {"rfind", [](const Text& t, const Arguments& a) { return find_in(t, a, true); }},
      {"index",
       [](const Text& t, const Arguments& a) {
         auto at = find_in(t, a, false);
         if (at.as_integer() < 0) throw Error("substring not found");
         return at;
       }},
      {"count", count_in},
      {"join", join_items},
      {"partition", partition},
      {"removeprefix", [](const Text& t, const Arguments& a) { return remove_affix(t, a, true); }},
      {"removesuffix", [](const Text& t, const Arguments& a) { return remove_affix(t, a, false); }},
      {"isspace", [](const Text& t, const Arguments&) { return Value::boolean(all_characters(t, is_python_space)); }},
      {"isdigit",
       [](const Text& t, const Arguments&) {
         return Value::boolean(all_characters(t, [](char32_t c) { return c >= '0' && c <= '9'; }));
       }},
  };
  return table;
}

Value dict_method(const Value& dict, const std::string& name) {
  auto view = [&](auto pick) {
    return Value::callable([dict, pick](const Arguments&) {
      List items;
      for (const auto& [key, value] : dict.as_dict()) items.push_back(pick(key, value));
      return Value::list(std::move(items));
    });
  };
  if (name == "items") return view([](const Value& key, const Value& value) { return Value::tuple({key, value}); });
  if (name == "keys") return view([](const Value& key, const Value&) { return key; });
  if (name == "values") return view([](const Value&, const Value& value) { return value; });
  if (name != "get") return Value();
  return Value::callable([dict](const Arguments& arguments) {
    const auto& key = required(arguments, 0);
    const auto* found = key.is_text() ? dict.find(key.as_text().bytes()) : nullptr;
    const auto* fallback = arguments.find(1, "default");
    return found ? *found : fallback ? *fallback : Value::none();
  });
}

Value list_method(const Value& list, const std::string& name) {
  for (auto forbidden : {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"}) {
    if (name == forbidden) throw Error(fmt::format("lists cannot be changed in a template (.{})", name));
  }
  if (name == "index") {
    return Value::callable([list](const Arguments& arguments) {
      const auto& items = list.as_list();
      auto found = std::find_if(items.begin(), items.end(),
                                [&](const Value& item) { return equal(item, required(arguments, 0)); });
      if (found == items.end()) throw Error("the value is not in the list");
      return Value::integer(found - items.begin());
    });
  }
  if (name != "count") return Value();
  return Value::callable([list](const Arguments& arguments) {
    const auto& items = list.as_list();
    return Value::integer(std::count_if(items.begin(), items.end(),
                                        [&](const Value& item) { return equal(item, required(arguments, 0)); }));
  });
}

Value range(const Arguments& arguments) {
  int64_t begin = 0, end = required(arguments, 0).as_integer(), step = 1;
  if (arguments.positional.size() > 1) begin = end, end = arguments.positional[1].as_integer();
  if (arguments.positional.size() > 2) step = arguments.positional[2].as_integer();
  if (step == 0) throw Error("range() with a step of zero");
  constexpr int64_t kMaxRange = 100000;  // Jinja's sandbox
  List items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange)
      throw Error(fmt::format("range() of more than {} items", kMaxRange));
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

Dict named_items(const Arguments& arguments) {
  Dict items;
  if (!arguments.positional.empty()) items = arguments.positional[0].as_dict();
  for (const auto& [name, value] : arguments.named) items.emplace_back(Value::text(name), value);
  return items;
}

Value strftime_now(const Arguments& arguments) {
  auto format = required(arguments, 0).as_text().bytes();
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[512];
  size_t length = format.size() > 200 ? 0 : std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  return Value::text(std::string(buffer, length));
}

}  // namespace

Value find_method(const Value& value, const std::string& name) {
  if (value.is_text()) {
    auto method = text_methods().find(name);
    if (method == text_methods().end()) return Value();
    return Value::callable([text = value.as_text(), function = method->second](const Arguments& arguments) {
      return function(text, arguments);
    });
  }
  if (value.kind() == Value::Kind::kDict) return dict_method(value, name);
  return value.is_sequence() ? list_method(value, name) : Value();
}

Value get_attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) throw Error(value.what().empty() ? "an undefined value is used" : value.what());
  auto method = find_method(value, name);
  if (!method.is_undefined()) return method;
  const auto* found = value.is_dict() ? value.find(name) : nullptr;
  return found ? *found : Value::undefined(fmt::format("{} has no attribute '{}'", value.type_name(), name));
}

Value get_item(const Value& value, const Value& key) {
  if (value.is_undefined()) throw Error(value.what().empty() ? "an undefined value is used" : value.what());
  if (value.is_dict()) {
    const auto* found = key.is_text() ? value.find(key.as_text().bytes()) : nullptr;
    if (found) return *found;
    for (const auto& [name, item] : value.as_dict()) {
      if (!key.is_text() && equal(name, key)) return item;
    }
  } else if ((value.is_sequence() || value.is_text()) && (key.is_integer() || key.kind() == Value::Kind::kBool)) {
    auto n = static_cast<int64_t>(value.length()), index = key.as_integer();
    if (index < 0) index += n;
    if (index >= 0 && index < n) {
      if (value.is_sequence()) return value.as_list()[static_cast<size_t>(index)];
      const auto& text = value.as_text();
      size_t begin = text.offset_of(static_cast<size_t>(index));
      return Value::text(text.substr(begin, begin + utf8_width(text.bytes(), begin)));
    }
  }
  if (key.is_text()) {
    auto method = find_method(value, key.as_text().bytes());
    if (!method.is_undefined()) return method;
  }
  return Value::undefined(fmt::format("{} has no element {}", value.type_name(), key.repr().bytes()));
}

Value get_path(const Value& value, const std::string& path) {
  Value current = value;
  for (size_t begin = 0; begin <= path.size();) {
    size_t dot = std::min(path.find('.', begin), path.size());
    auto name = path.substr(begin, dot - begin);
    bool is_index = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    current = get_item(current, is_index ? Value::integer(std::stoll(name)) : Value::text(name));
    begin = dot + 1;
  }
  return current;
}

Value find_function(const std::string& name) {
  if (name == "range") return Value::callable(range);
  if (name == "dict")
    return Value::callable([](const Arguments& arguments) { return Value::dict(named_items(arguments)); });
  if (name == "namespace")
    return Value::callable([](const Arguments& arguments) { return Value::name_space(named_items(arguments)); });
  if (name == "strftime_now") return Value::callable(strftime_now);
  if (name == "raise_exception") {
    return Value::callable(
        [](const Arguments& arguments) -> Value { throw Error(required(arguments, 0).to_text().bytes()); });
  }
  return Value();
}

}  // namespace vlmtune::jinja
