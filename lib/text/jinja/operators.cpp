#include "lib/text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/text/jinja/builtins.h"

namespace vlmtune::jinja {
namespace {

[[noreturn]] void fail(const std::string& op, const Value& left, const Value& right) {
  for (const auto* side : {&left, &right}) {
    if (side->is_undefined()) throw Error(side->what().empty() ? "an undefined value is used" : side->what());
  }
  throw Error(fmt::format("{} {} {} is not possible", left.type_name(), op, right.type_name()));
}

int64_t checked(bool overflow, int64_t value) {
  if (overflow) throw Error("an integer becomes too large");
  return value;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw Error("division by zero");
  if (b == -1) return checked(a == INT64_MIN, -a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t power(int64_t base, int64_t exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (exponent > 64) throw Error("an integer becomes too large");
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    bool overflow = __builtin_mul_overflow(result, base, &result);
    checked(overflow, 0);
  }
  return result;
}

Value integer_operation(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    bool overflow = __builtin_add_overflow(a, b, &result);
    return Value::integer(checked(overflow, result));
  }
  if (op == "-") {
    bool overflow = __builtin_sub_overflow(a, b, &result);
    return Value::integer(checked(overflow, result));
  }
  if (op == "*") {
    bool overflow = __builtin_mul_overflow(a, b, &result);
    return Value::integer(checked(overflow, result));
  }
  if (op == "//") return Value::integer(floor_divide(a, b));
  if (op == "%") return Value::integer(b == -1 ? 0 : a - floor_divide(a, b) * b);
  if (op == "**" && b >= 0) return Value::integer(power(a, b));
  if (op == "/" && b == 0) throw Error("division by zero");
  auto x = static_cast<double>(a), y = static_cast<double>(b);
  return Value::real(op == "/" ? x / y : std::pow(x, y));
}

Value real_operation(const std::string& op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "**") return Value::real(std::pow(a, b));
  if (b == 0) throw Error("division by zero");
  if (op == "/") return Value::real(a / b);
  if (op == "//") return Value::real(std::floor(a / b));
  return Value::real(a - std::floor(a / b) * b);
}

Value repeat(const Value& value, int64_t times) {
  auto count = static_cast<size_t>(std::max<int64_t>(0, times));
  if (value.is_text()) {
    if (count > 0 && value.as_text().size() > kMaxTextBytes / count) throw Error("a text becomes too long");
    Text out;
    for (size_t i = 0; i < count && !value.as_text().empty(); ++i) out.append(value.as_text());
    return Value::text(std::move(out));
  }
  if (count > 0 && value.as_list().size() > kMaxItems / count) throw Error("a list becomes too long");
  List out;
  for (size_t i = 0; i < count && !value.as_list().empty(); ++i)
    out.insert(out.end(), value.as_list().begin(), value.as_list().end());
  return Value::list(std::move(out));
}

Value join_text(const Text& left, const Text& right) {
  if (left.size() + right.size() > kMaxTextBytes) throw Error("a text becomes too long");
  Text out = left;
  out.append(right);
  return Value::text(std::move(out));
}

}  // namespace

Value unary(const std::string& op, const Value& value) {
  if (op == "not") return Value::boolean(!value.truth());
  if (!value.is_number()) fail(op, Value::integer(0), value);
  if (value.kind() == Value::Kind::kFloat) return Value::real(op == "-" ? -value.as_number() : value.as_number());
  return integer_operation(op, 0, value.as_integer());
}

Value binary(const std::string& op, const Value& left, const Value& right) {
  if (op == "~") return join_text(left.to_text(), right.to_text());
  if (left.is_number() && right.is_number()) {
    bool real = left.kind() == Value::Kind::kFloat || right.kind() == Value::Kind::kFloat;
    return real ? real_operation(op, left.as_number(), right.as_number())
                : integer_operation(op, left.as_integer(), right.as_integer());
  }
  if (op == "+" && left.is_text() && right.is_text()) return join_text(left.as_text(), right.as_text());
  if (op == "+" && left.is_sequence() && left.kind() == right.kind()) {
    List items = left.as_list();
    if (items.size() + right.as_list().size() > kMaxItems) throw Error("a list becomes too long");
    items.insert(items.end(), right.as_list().begin(), right.as_list().end());
    return left.kind() == Value::Kind::kList ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (op == "*" && (left.is_text() || left.is_sequence()) && right.is_integer())
    return repeat(left, right.as_integer());
  if (op == "*" && left.is_integer() && (right.is_text() || right.is_sequence()))
    return repeat(right, left.as_integer());
  fail(op, left, right);
}

bool holds(const std::string& op, const Value& left, const Value& right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  if (op == "in") return contains(right, left);
  if (op == "not in") return !contains(right, left);
  int order = compare(left, right);
  if (op == "<") return order < 0;
  if (op == ">") return order > 0;
  return op == "<=" ? order <= 0 : order >= 0;
}

Value slice(const Value& value, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t step) {
  if (step == 0) throw Error("a slice step of zero");
  auto n = static_cast<int64_t>(value.length());
  auto clamp = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) return fallback;
    int64_t index = *bound < 0 ? *bound + n : *bound;
    return step > 0 ? std::clamp<int64_t>(index, 0, n) : std::clamp<int64_t>(index, -1, n - 1);
  };
  int64_t first = clamp(begin, step > 0 ? 0 : n - 1), last = clamp(end, step > 0 ? n : -1);
  if (value.is_text() && step == 1) {
    const auto& text = value.as_text();
    size_t from = text.offset_of(static_cast<size_t>(first)),
           to = text.offset_of(static_cast<size_t>(std::max(first, last)));
    return Value::text(text.substr(from, to));
  }
  if (!value.is_text() && !value.is_sequence()) throw Error(fmt::format("{} cannot be sliced", value.type_name()));
  List items = value.iterate(), out;
  step = std::clamp<int64_t>(step, -n - 1, n + 1);
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) out.push_back(items[static_cast<size_t>(i)]);
  if (value.is_text()) {
    Text joined;
    for (const auto& character : out) joined.append(character.as_text());
    return Value::text(std::move(joined));
  }
  return value.kind() == Value::Kind::kList ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

}  // namespace vlmtune::jinja
