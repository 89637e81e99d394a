// Filters, tests, methods and functions of the template language.
#pragma once
#include <string>

#include "lib/text/jinja/value.h"

namespace vlmtune::jinja {

/// value | name(arguments). Errors: Error, also for an unknown filter.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
/// value is name(arguments).
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
/// The method of a string, list or dictionary as something to call, or undefined.
Value find_method(const Value& value, const std::string& name);
/// range, dict, namespace, raise_exception, strftime_now; undefined for another name.
Value find_function(const std::string& name);

/// value.name and value[key], as Jinja resolves them; undefined when there is nothing.
Value get_attribute(const Value& value, const std::string& name);
Value get_item(const Value& value, const Value& key);
/// A path such as "function.name" of a map or selectattr filter.
Value get_path(const Value& value, const std::string& path);

/// Longest text a template may make, and longest list.
inline constexpr size_t kMaxTextBytes = size_t{16} << 20;
inline constexpr size_t kMaxItems = 1'000'000;

}  // namespace vlmtune::jinja
