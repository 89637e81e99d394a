// Arithmetic, comparison and slicing of template values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "lib/text/jinja/value.h"

namespace vlmtune::jinja {

/// "not", "-", "+".
Value unary(const std::string& op, const Value& value);
/// + - * / // % ** ~
Value binary(const std::string& op, const Value& left, const Value& right);
/// == != < > <= >= in "not in"
bool holds(const std::string& op, const Value& left, const Value& right);
/// Python's value[begin:end:step] of a string or list.
Value slice(const Value& value, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t step);

}  // namespace vlmtune::jinja
