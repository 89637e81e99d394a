// What stands behind "is".
#include <fmt/format.h>

#include <unordered_map>

#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/operators.h"

namespace vlmtune::jinja {
namespace {

using Kind = Value::Kind;
using Predicate = bool (*)(const Value&, const Arguments&);

const Value& operand(const Arguments& arguments) {
  if (arguments.positional.empty()) throw Error("a test needs a value to compare with");
  return arguments.positional[0];
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_sequence() || value.kind() == Kind::kDict;
}

bool is_case(const Value& value, Case which) {
  auto text = value.to_text();
  auto changed = change_case(text, which).bytes();
  auto other = change_case(text, which == Case::kUpper ? Case::kLower : Case::kUpper).bytes();
  return changed == text.bytes() && other != text.bytes();
}

bool divides(const Value& value, int64_t divisor) {
  if (divisor == 0) throw Error("division by zero");
  return divisor == -1 || value.as_integer() % divisor == 0;
}

const std::unordered_map<std::string, Predicate>& predicates() {
  static const auto table = [] {
    std::unordered_map<std::string, Predicate> all = {
        {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
        {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
        {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
        {"string", [](const Value& v, const Arguments&) { return v.is_text(); }},
        {"mapping", [](const Value& v, const Arguments&) { return v.kind() == Kind::kDict; }},
        {"iterable", [](const Value& v, const Arguments&) { return is_iterable(v); }},
        {"sequence", [](const Value& v, const Arguments&) { return is_iterable(v); }},
        {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
        {"integer", [](const Value& v, const Arguments&) { return v.is_integer(); }},
        {"float", [](const Value& v, const Arguments&) { return v.kind() == Kind::kFloat; }},
        {"boolean", [](const Value& v, const Arguments&) { return v.kind() == Kind::kBool; }},
        {"true", [](const Value& v, const Arguments&) { return v.kind() == Kind::kBool && v.truth(); }},
        {"false", [](const Value& v, const Arguments&) { return v.kind() == Kind::kBool && !v.truth(); }},
        {"callable", [](const Value& v, const Arguments&) { return v.kind() == Kind::kCallable; }},
        {"even", [](const Value& v, const Arguments&) { return v.as_integer() % 2 == 0; }},
        {"odd", [](const Value& v, const Arguments&) { return v.as_integer() % 2 != 0; }},
        {"divisibleby", [](const Value& v, const Arguments& a) { return divides(v, operand(a).as_integer()); }},
        {"lower", [](const Value& v, const Arguments&) { return is_case(v, Case::kLower); }},
        {"upper", [](const Value& v, const Arguments&) { return is_case(v, Case::kUpper); }},
        {"in", [](const Value& v, const Arguments& a) { return contains(operand(a), v); }},
        {"sameas",
         [](const Value& v, const Arguments& a) { return v.kind() == operand(a).kind() && equal(v, operand(a)); }},
        {"eq", [](const Value& v, const Arguments& a) { return equal(v, operand(a)); }},
        {"ne", [](const Value& v, const Arguments& a) { return !equal(v, operand(a)); }},
        {"lt", [](const Value& v, const Arguments& a) { return compare(v, operand(a)) < 0; }},
        {"le", [](const Value& v, const Arguments& a) { return compare(v, operand(a)) <= 0; }},
        {"gt", [](const Value& v, const Arguments& a) { return compare(v, operand(a)) > 0; }},
        {"ge", [](const Value& v, const Arguments& a) { return compare(v, operand(a)) >= 0; }},
    };
    const std::pair<const char*, const char*> kAliases[] = {{"equalto", "eq"}, {"==", "eq"},          {"!=", "ne"},
                                                            {"<", "lt"},       {"lessthan", "lt"},    {"<=", "le"},
                                                            {">", "gt"},       {"greaterthan", "gt"}, {">=", "ge"}};
    for (const auto& [alias, name] : kAliases) all[alias] = all[name];
    return all;
  }();
  return table;
}

}  // namespace

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  auto predicate = predicates().find(name);
  if (predicate == predicates().end()) throw Error(fmt::format("no test named '{}'", name));
  return predicate->second(value, arguments);
}

}  // namespace vlmtune::jinja
