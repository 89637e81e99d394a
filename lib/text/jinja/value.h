// The values of the template language: Python's, as far as chat templates use them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lib/text/jinja/text.h"

namespace vlmtune::jinja {

/// A template that is wrong, or that refuses what it is given. `line` 0: not known yet.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int line = 0) : std::runtime_error(message), line(line) {}
  int line;
};

class Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<Value, Value>>;  // in order of insertion; they are small

/// Arguments of a call.
struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at `index` or called `name`, or nullptr.
  const Value* find(size_t index, const std::string& name) const;
};

using Callable = std::function<Value(const Arguments&)>;

class Value {
 public:
  enum class Kind { kUndefined, kNone, kBool, kInteger, kFloat, kText, kList, kTuple, kDict, kNamespace, kCallable };

  Value() = default;  // undefined
  static Value undefined(std::string what);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value text(Text value);
  static Value text(std::string value) { return text(Text(std::move(value))); }
  static Value list(List items);
  static Value tuple(List items);
  static Value dict(Dict items);
  static Value name_space(Dict items);
  static Value callable(Callable function);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict || kind_ == Kind::kNamespace; }
  bool is_number() const { return kind_ == Kind::kBool || is_integer() || kind_ == Kind::kFloat; }
  bool is_integer() const { return kind_ == Kind::kInteger; }

  // The content; errors name what was expected.
  const Text& as_text() const;
  const List& as_list() const;
  const Dict& as_dict() const;
  int64_t as_integer() const;  // also a bool
  double as_number() const;
  const Callable& as_callable() const;
  bool truth() const;

  /// The value of a key, or nullptr. Only for dictionaries.
  const Value* find(std::string_view key) const;
  /// Namespaces only.
  void set(const std::string& key, Value value) const;

  /// What a loop goes over: items, characters, keys. Undefined gives nothing.
  List iterate() const;
  size_t length() const;
  /// Python's str() and repr().
  Text to_text() const;
  Text repr() const;
  /// For messages: "dict object" and the like.
  std::string type_name() const;
  /// For messages about an undefined value.
  const std::string& what() const { return what_; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  void append_repr(Text& out, int depth) const;
  Kind kind_ = Kind::kUndefined;
  void watch(const Value& child);  // a child's depth and namespaces count for the parent
  bool holds_namespace_ = false;
  int depth_ = 0;
  int64_t integer_ = 0;
  double real_ = 0;
  std::string what_;  // undefined: its name
  std::shared_ptr<const Text> text_;
  std::shared_ptr<const List> list_;
  std::shared_ptr<Dict> dict_;
  std::shared_ptr<const Callable> callable_;
};

bool equal(const Value& a, const Value& b);
/// -1, 0, 1; numbers with numbers, texts with texts, lists with lists.
int compare(const Value& a, const Value& b);
/// Python's `in`.
bool contains(const Value& container, const Value& item);
/// json.dumps(ensure_ascii=False); `indent` negative: one line.
Text to_json(const Value& value, int indent, bool sort_keys, const std::string& item_separator,
             const std::string& key_separator);
/// Python's repr of a float.
std::string format_real(double value);

}  // namespace vlmtune::jinja
