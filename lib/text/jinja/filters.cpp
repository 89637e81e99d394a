#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/operators.h"

namespace vlmtune::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&);

int64_t integer_argument(const Arguments& arguments, size_t index, const char* name, int64_t fallback) {
  const auto* value = arguments.find(index, name);
  return value && !value->is_none() ? value->as_integer() : fallback;
}

bool flag_argument(const Arguments& arguments, size_t index, const char* name, bool fallback) {
  const auto* value = arguments.find(index, name);
  return value ? value->truth() : fallback;
}

std::string text_argument(const Arguments& arguments, size_t index, const char* name, const std::string& fallback) {
  const auto* value = arguments.find(index, name);
  return value && !value->is_none() ? value->as_text().bytes() : fallback;
}

template <Case to>
Value case_filter(const Value& value, const Arguments&) {
  return Value::text(change_case(value.to_text(), to));
}

Value trim(const Value& value, const Arguments& arguments) {
  return Value::text(strip(value.to_text(), text_argument(arguments, 0, "chars", ""), true, true));
}

Value length(const Value& value, const Arguments&) { return Value::integer(static_cast<int64_t>(value.length())); }

Value first(const Value& value, const Arguments&) {
  auto items = value.iterate();
  return items.empty() ? Value::undefined("no first item, the sequence was empty") : items.front();
}

Value last(const Value& value, const Arguments&) {
  auto items = value.iterate();
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : items.back();
}

Value to_list(const Value& value, const Arguments&) { return Value::list(value.iterate()); }
Value to_string(const Value& value, const Arguments&) { return Value::text(value.to_text()); }

Value join(const Value& value, const Arguments& arguments) {
  const auto* separator = arguments.find(0, "d");
  const auto* attribute = arguments.find(1, "attribute");
  Text out;
  bool is_first = true;
  for (const auto& item : value.iterate()) {
    if (!is_first && separator) out.append(separator->to_text());
    is_first = false;
    out.append((attribute ? get_path(item, attribute->as_text().bytes()) : item).to_text());
    if (out.size() > kMaxTextBytes) throw Error("a text becomes too long");
  }
  return Value::text(std::move(out));
}

Value default_value(const Value& value, const Arguments& arguments) {
  bool missing = value.is_undefined() || (flag_argument(arguments, 1, "boolean", false) && !value.truth());
  if (!missing) return value;
  const auto* fallback = arguments.find(0, "default_value");
  return fallback ? *fallback : Value::text("");
}

Value replace_filter(const Value& value, const Arguments& arguments) {
  const auto *from = arguments.find(0, "old"), *to = arguments.find(1, "new");
  if (!from || !to) throw Error("replace needs two strings");
  return Value::text(replace(value.to_text(), from->as_text().bytes(), to->as_text(),
                             static_cast<long>(integer_argument(arguments, 2, "count", -1))));
}

Value to_integer(const Value& value, const Arguments& arguments) {
  auto fallback = integer_argument(arguments, 0, "default", 0);
  if (value.kind() == Value::Kind::kFloat) {
    double real = std::trunc(value.as_number());
    return Value::integer(std::abs(real) < 9e18 ? static_cast<int64_t>(real) : fallback);
  }
  if (value.is_number()) return Value::integer(value.as_integer());
  if (!value.is_text()) return Value::integer(fallback);
  auto text = strip(value.as_text(), "", true, true).bytes();
  char* end = nullptr;
  double real = std::strtod(text.c_str(), &end);
  bool whole = !text.empty() && *end == '\0' && std::abs(real) < 9e18;
  return Value::integer(whole ? static_cast<int64_t>(real) : fallback);
}

Value to_real(const Value& value, const Arguments& arguments) {
  if (value.is_number()) return Value::real(value.as_number());
  const auto* fallback = arguments.find(0, "default");
  double other = fallback ? fallback->as_number() : 0.0;
  if (!value.is_text()) return Value::real(other);
  auto text = strip(value.as_text(), "", true, true).bytes();
  char* end = nullptr;
  double real = std::strtod(text.c_str(), &end);
  return Value::real(!text.empty() && *end == '\0' ? real : other);
}

Value tojson(const Value& value, const Arguments& arguments) {
  auto indent = integer_argument(arguments, 1, "indent", -1);
  if (const auto* given = arguments.find(99, "indent"); given && given->is_integer()) indent = given->as_integer();
  std::string item = indent >= 0 ? "," : ", ", key = ": ";
  if (const auto* separators = arguments.find(2, "separators");
      separators && separators->is_sequence() && separators->as_list().size() == 2) {
    item = separators->as_list()[0].as_text().bytes(), key = separators->as_list()[1].as_text().bytes();
  }
  return Value::text(to_json(value, static_cast<int>(std::clamp<int64_t>(indent, -1, 64)),
                             flag_argument(arguments, 3, "sort_keys", false), item, key));
}

/// The rest of the arguments behind the first `count`.
Arguments tail(const Arguments& arguments, size_t count) {
  Arguments rest;
  for (size_t i = count; i < arguments.positional.size(); ++i) rest.positional.push_back(arguments.positional[i]);
  return rest;
}

Value select_by(const Value& value, const Arguments& arguments, bool by_attribute, bool keep) {
  size_t used = by_attribute ? 1 : 0;
  std::string path = by_attribute ? text_argument(arguments, 0, "attribute", "") : "";
  if (by_attribute && path.empty()) throw Error("selectattr and rejectattr need the name of an attribute");
  List out;
  for (const auto& item : value.iterate()) {
    auto subject = by_attribute ? get_path(item, path) : item;
    bool passes = arguments.positional.size() > used
                      ? apply_test(arguments.positional[used].as_text().bytes(), subject, tail(arguments, used + 1))
                      : subject.truth();
    if (passes == keep) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value map_filter(const Value& value, const Arguments& arguments) {
  List out;
  Arguments none;
  for (const auto& item : value.iterate()) {
    if (const auto* attribute = arguments.find(99, "attribute")) {
      auto found = attribute->is_integer() ? get_item(item, *attribute) : get_path(item, attribute->as_text().bytes());
      const auto* fallback = arguments.find(99, "default");
      out.push_back(found.is_undefined() && fallback ? *fallback : found);
    } else {
      if (arguments.positional.empty()) throw Error("map needs a filter or an attribute");
      out.push_back(apply_filter(arguments.positional[0].as_text().bytes(), item, tail(arguments, 1)));
    }
  }
  return Value::list(std::move(out));
}

Value items(const Value& value, const Arguments&) {
  List out;
  if (value.is_undefined()) return Value::list(out);
  for (const auto& [key, item] : value.as_dict()) out.push_back(Value::tuple({key, item}));
  return Value::list(std::move(out));
}

Value dictsort(const Value& value, const Arguments& arguments) {
  bool by_value = text_argument(arguments, 1, "by", "key") == "value",
       reverse = flag_argument(arguments, 2, "reverse", false);
  Dict sorted = value.as_dict();
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
    int order = by_value ? compare(a.second, b.second) : compare(a.first, b.first);
    return reverse ? order > 0 : order < 0;
  });
  return items(Value::dict(std::move(sorted)), {});
}

Value sort(const Value& value, const Arguments& arguments) {
  bool reverse = flag_argument(arguments, 0, "reverse", false),
       case_sensitive = flag_argument(arguments, 1, "case_sensitive", false);
  const auto* attribute = arguments.find(2, "attribute");
  auto key = [&](const Value& item) {
    auto subject = attribute ? get_path(item, attribute->as_text().bytes()) : item;
    return subject.is_text() && !case_sensitive ? Value::text(change_case(subject.as_text(), Case::kLower)) : subject;
  };
  List sorted = value.iterate();
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Value& a, const Value& b) {
    int order = compare(key(a), key(b));
    return reverse ? order > 0 : order < 0;
  });
  return Value::list(std::move(sorted));
}

Value reverse(const Value& value, const Arguments&) {
  List out = value.iterate();
  std::reverse(out.begin(), out.end());
  if (!value.is_text()) return Value::list(std::move(out));
  return join(Value::list(std::move(out)), {});
}

Value unique(const Value& value, const Arguments&) {
  constexpr size_t kMaxUnique = 2000;  // the comparison is quadratic
  List out;
  for (const auto& item : value.iterate()) {
    bool known = std::any_of(out.begin(), out.end(), [&](const Value& other) { return equal(item, other); });
    if (!known) out.push_back(item);
    if (out.size() > kMaxUnique) throw Error(fmt::format("unique of more than {} items", kMaxUnique));
  }
  return Value::list(std::move(out));
}

Value sum(const Value& value, const Arguments& arguments) {
  const auto* attribute = arguments.find(0, "attribute");
  auto total = Value::integer(integer_argument(arguments, 1, "start", 0));
  for (const auto& item : value.iterate())
    total = binary("+", total, attribute ? get_path(item, attribute->as_text().bytes()) : item);
  return total;
}

template <int sign>
Value extreme(const Value& value, const Arguments&) {
  auto all = value.iterate();
  if (all.empty()) return Value::undefined("no aggregated item, the sequence was empty");
  auto best = all.front();
  for (const auto& item : all) {
    if (compare(item, best) * sign > 0) best = item;
  }
  return best;
}

Value absolute(const Value& value, const Arguments&) { return value.as_number() < 0 ? unary("-", value) : value; }

Value round_filter(const Value& value, const Arguments& arguments) {
  auto digits = std::clamp<int64_t>(integer_argument(arguments, 0, "precision", 0), -15, 15);
  auto method = text_argument(arguments, 1, "method", "common");
  double scale = std::pow(10.0, static_cast<double>(digits)), scaled = value.as_number() * scale;
  return Value::real((method == "ceil"    ? std::ceil(scaled)
                      : method == "floor" ? std::floor(scaled)
                                          : std::nearbyint(scaled)) /
                     scale);
}

Value escape(const Value& value, const Arguments&) {
  auto text = value.to_text();
  const std::pair<const char*, const char*> kEntities[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  for (const auto& [from, to] : kEntities) text = replace(text, from, Text(to), -1);
  return Value::text(std::move(text));
}

Value indent(const Value& value, const Arguments& arguments) {
  const auto* width = arguments.find(0, "width");
  std::string margin =
      width && width->is_text()
          ? width->as_text().bytes()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(width ? width->as_integer() : 4, 0, 1000)), ' ');
  bool with_first = flag_argument(arguments, 1, "first", false),
       with_blank = flag_argument(arguments, 2, "blank", false);
  auto text = value.to_text();
  text.append("\n", kTemplateSource);  // as Jinja does, so that a last empty line survives
  auto lines = splitlines(text);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", kTemplateSource);
    bool wanted = i == 0 ? with_first : with_blank || !lines[i].empty();
    if (wanted) out.append(margin, kTemplateSource);
    out.append(lines[i]);
  }
  return Value::text(std::move(out));
}

Value same(const Value& value, const Arguments&) { return value; }

const std::unordered_map<std::string, Filter>& filters() {
  static const std::unordered_map<std::string, Filter> table = {
      {"trim", trim},
      {"upper", case_filter<Case::kUpper>},
      {"lower", case_filter<Case::kLower>},
      {"title", case_filter<Case::kTitle>},
      {"capitalize", case_filter<Case::kCapitalize>},
      {"length", length},
      {"count", length},
      {"first", first},
      {"last", last},
      {"list", to_list},
      {"string", to_string},
      {"join", join},
      {"default", default_value},
      {"d", default_value},
      {"replace", replace_filter},
      {"int", to_integer},
      {"float", to_real},
      {"tojson", tojson},
      {"map", map_filter},
      {"items", items},
      {"dictsort", dictsort},
      {"sort", sort},
      {"reverse", reverse},
      {"unique", unique},
      {"sum", sum},
      {"min", extreme<-1>},
      {"max", extreme<1>},
      {"abs", absolute},
      {"round", round_filter},
      {"escape", escape},
      {"e", escape},
      {"indent", indent},
      {"safe", same},
      {"select", [](const Value& v, const Arguments& a) { return select_by(v, a, false, true); }},
      {"reject", [](const Value& v, const Arguments& a) { return select_by(v, a, false, false); }},
      {"selectattr", [](const Value& v, const Arguments& a) { return select_by(v, a, true, true); }},
      {"rejectattr", [](const Value& v, const Arguments& a) { return select_by(v, a, true, false); }},
  };
  return table;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  auto filter = filters().find(name);
  if (filter == filters().end()) throw Error(fmt::format("no filter named '{}'", name));
  return filter->second(value, arguments);
}

}  // namespace vlmtune::jinja
