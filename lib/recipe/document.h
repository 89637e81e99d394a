// A JSON document as an own value type: objects keep their order, and no header needs a JSON library.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace vlmtune {

class Value;
using Array = std::vector<Value>;

struct Member;

/// Members in the order of the file.
class Object {
 public:
  Object();
  Object(const Object&);
  Object(Object&&) noexcept;
  Object& operator=(const Object&);
  Object& operator=(Object&&) noexcept;
  ~Object();
  /// The member's value, or nullptr.
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  /// The member's value, made (null) at the end when missing.
  Value& operator[](std::string_view key);
  void erase(std::string_view key);
  bool empty() const { return begin() == end(); }
  const Member* begin() const;
  const Member* end() const;
  Member* begin();
  Member* end();
  bool operator==(const Object& other) const;

 private:
  std::vector<Member> members_;
};

class Value {
 public:
  Value() = default;
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(Array value) : data_(std::move(value)) {}
  Value(Object value) : data_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* text() const { return std::get_if<std::string>(&data_); }
  const Array* array() const { return std::get_if<Array>(&data_); }
  Array* array() { return std::get_if<Array>(&data_); }
  const Object* object() const { return std::get_if<Object>(&data_); }
  Object* object() { return std::get_if<Object>(&data_); }
  /// Numbers compare by value: 1 equals 1.0.
  bool operator==(const Value& other) const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> data_;
};

struct Member {
  std::string key;
  Value value;
  bool operator==(const Member&) const = default;
};

/// Parses JSON with // and /* */ comments. Errors: usage_error "origin:line:column: ..." for broken syntax, keys given
/// twice, nesting deeper than 64 and numbers out of range.
Value parse_document(std::string_view text, std::string_view origin);

/// JSON text: objects over several lines, lists of plain values on one.
std::string pretty_text(const Value& value);

/// JSON text on one line.
std::string inline_text(const Value& value);

}  // namespace vlmtune
