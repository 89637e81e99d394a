#include "lib/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/text/unicode.h"

namespace vlmtune::jinja {
namespace {

constexpr int kMaxDepth = 100;

[[noreturn]] void fail_kind(const Value& value, const char* expected) {
  if (value.is_undefined()) throw Error(value.what().empty() ? "an undefined value is used" : value.what());
  throw Error(fmt::format("expected {}, found {}", expected, value.type_name()));
}

/// Python's repr of a string; the quotes are the template's, the content keeps its sources.
void append_quoted(Text& out, const Text& text) {
  const auto& bytes = text.bytes();
  char quote = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos ? '"' : '\'';
  out.append(std::string(1, quote), kTemplateSource);
  for (size_t at = 0; at < bytes.size();) {
    size_t begin = at;
    int source = text.source_at(at);
    auto code = next_code_point(bytes, at);
    if (code == '\n')
      out.append("\\n", source);
    else if (code == '\r')
      out.append("\\r", source);
    else if (code == '\t')
      out.append("\\t", source);
    else if (code == '\\' || code == static_cast<char32_t>(quote))
      out.append(std::string("\\") + bytes[begin], source);
    else if (code < 0x20 || code == 0x7F)
      out.append(fmt::format("\\x{:02x}", static_cast<int>(code)), source);
    else
      out.append(std::string_view(bytes).substr(begin, at - begin), source);
  }
  out.append(std::string(1, quote), kTemplateSource);
}

}  // namespace

const Value* Arguments::find(size_t index, const std::string& name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value Value::undefined(std::string what) {
  Value value;
  value.what_ = std::move(what);
  return value;
}
Value Value::boolean(bool b) {
  Value value(Kind::kBool);
  value.integer_ = b;
  return value;
}
Value Value::integer(int64_t i) {
  Value value(Kind::kInteger);
  value.integer_ = i;
  return value;
}
Value Value::real(double d) {
  Value value(Kind::kFloat);
  value.real_ = d;
  return value;
}
Value Value::text(Text t) {
  Value value(Kind::kText);
  value.text_ = std::make_shared<const Text>(std::move(t));
  return value;
}
void Value::watch(const Value& child) {
  depth_ = std::max(depth_, child.depth_ + 1);
  holds_namespace_ = holds_namespace_ || child.holds_namespace_ || child.kind_ == Kind::kNamespace;
  if (depth_ > kMaxDepth) throw Error("a value is nested too deeply");
}

Value Value::list(List items) {
  Value value(Kind::kList);
  for (const auto& item : items) value.watch(item);
  value.list_ = std::make_shared<const List>(std::move(items));
  return value;
}
Value Value::tuple(List items) {
  auto value = list(std::move(items));
  value.kind_ = Kind::kTuple;
  return value;
}
Value Value::dict(Dict items) {
  Value value(Kind::kDict);
  for (const auto& [key, item] : items) value.watch(key), value.watch(item);
  value.dict_ = std::make_shared<Dict>(std::move(items));
  return value;
}
Value Value::name_space(Dict items) {
  auto value = dict(std::move(items));
  value.kind_ = Kind::kNamespace;
  return value;
}
Value Value::callable(Callable function) {
  Value value(Kind::kCallable);
  value.callable_ = std::make_shared<const Callable>(std::move(function));
  return value;
}

const Text& Value::as_text() const {
  if (!is_text()) fail_kind(*this, "a string");
  return *text_;
}
const List& Value::as_list() const {
  if (!is_sequence()) fail_kind(*this, "a list");
  return *list_;
}
const Dict& Value::as_dict() const {
  if (!is_dict()) fail_kind(*this, "a mapping");
  return *dict_;
}
int64_t Value::as_integer() const {
  if (kind_ != Kind::kInteger && kind_ != Kind::kBool) fail_kind(*this, "an integer");
  return integer_;
}
double Value::as_number() const {
  if (!is_number()) fail_kind(*this, "a number");
  return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer_);
}
const Callable& Value::as_callable() const {
  if (kind_ != Kind::kCallable) fail_kind(*this, "something to call");
  return *callable_;
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return integer_ != 0;
    case Kind::kFloat:
      return real_ != 0;
    case Kind::kText:
      return !text_->empty();
    case Kind::kList:
    case Kind::kTuple:
      return !list_->empty();
    case Kind::kDict:
      return !dict_->empty();
    default:
      return true;
  }
}

const Value* Value::find(std::string_view key) const {
  for (const auto& [name, value] : as_dict()) {
    if (name.is_text() && name.as_text().bytes() == key) return &value;
  }
  return nullptr;
}

void Value::set(const std::string& key, Value value) const {
  if (kind_ != Kind::kNamespace) throw Error("only attributes of a namespace() can be set");
  bool cyclic = value.kind_ == Kind::kNamespace || value.holds_namespace_;
  if (cyclic) throw Error("a namespace() cannot hold another");
  for (auto& [name, old] : *dict_) {
    if (name.as_text().bytes() == key) {
      old = std::move(value);
      return;
    }
  }
  dict_->emplace_back(text(key), std::move(value));
}

List Value::iterate() const {
  List items;
  if (is_undefined()) return items;
  if (is_sequence()) return *list_;
  if (kind_ == Kind::kDict) {
    for (const auto& [key, value] : *dict_) items.push_back(key);
    return items;
  }
  if (!is_text()) throw Error(fmt::format("{} cannot be iterated over", type_name()));
  for (size_t at = 0; at < text_->size();) {
    size_t next = at + utf8_width(text_->bytes(), at);
    items.push_back(text(text_->substr(at, next)));
    at = next;
  }
  return items;
}

size_t Value::length() const {
  if (is_undefined()) return 0;
  if (is_text()) return text_->length();
  if (is_sequence()) return list_->size();
  if (kind_ == Kind::kDict) return dict_->size();
  throw Error(fmt::format("{} has no length", type_name()));
}

std::string format_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  auto text = fmt::format("{}", value);  // the shortest that reads back, as Python's
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

Text Value::to_text() const { return is_text() ? *text_ : is_undefined() ? Text() : repr(); }

Text Value::repr() const {
  Text out;
  append_repr(out, 0);
  return out;
}

void Value::append_repr(Text& out, int depth) const {
  if (depth > kMaxDepth) throw Error("a value is nested too deeply");
  auto put = [&](const std::string& bytes) { out.append(bytes, kTemplateSource); };
  switch (kind_) {
    case Kind::kUndefined:
      put("Undefined");
      break;
    case Kind::kNone:
      put("None");
      break;
    case Kind::kBool:
      put(integer_ ? "True" : "False");
      break;
    case Kind::kInteger:
      put(std::to_string(integer_));
      break;
    case Kind::kFloat:
      put(format_real(real_));
      break;
    case Kind::kText:
      append_quoted(out, *text_);
      break;
    case Kind::kList:
    case Kind::kTuple: {
      put(kind_ == Kind::kList ? "[" : "(");
      for (size_t i = 0; i < list_->size(); ++i) {
        if (i > 0) put(", ");
        (*list_)[i].append_repr(out, depth + 1);
      }
      if (kind_ == Kind::kTuple && list_->size() == 1) put(",");
      put(kind_ == Kind::kList ? "]" : ")");
      break;
    }
    case Kind::kDict:
    case Kind::kNamespace: {
      put(kind_ == Kind::kDict ? "{" : "<Namespace {");
      for (size_t i = 0; i < dict_->size(); ++i) {
        if (i > 0) put(", ");
        (*dict_)[i].first.append_repr(out, depth + 1);
        put(": ");
        (*dict_)[i].second.append_repr(out, depth + 1);
      }
      put(kind_ == Kind::kDict ? "}" : "}>");
      break;
    }
    case Kind::kCallable:
      put("<function>");
      break;
  }
}

std::string Value::type_name() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "an undefined value";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInteger:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kText:
      return "a str";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kDict:
      return "a dict";
    case Kind::kNamespace:
      return "a namespace";
    case Kind::kCallable:
      return "a function";
  }
  return "a value";
}

bool equal(const Value& a, const Value& b) {
  using Kind = Value::Kind;
  if (a.is_number() && b.is_number()) {
    bool whole = a.kind() != Kind::kFloat && b.kind() != Kind::kFloat;
    return whole ? a.as_integer() == b.as_integer() : a.as_number() == b.as_number();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_text()) return a.as_text().bytes() == b.as_text().bytes();
  if (a.is_sequence()) {
    const auto &x = a.as_list(), &y = b.as_list();
    bool same = x.size() == y.size();
    for (size_t i = 0; same && i < x.size(); ++i) same = equal(x[i], y[i]);
    return same;
  }
  if (a.kind() == Kind::kDict) {
    bool same = a.as_dict().size() == b.as_dict().size();
    for (const auto& [key, value] : a.as_dict()) {
      const auto* other = same && key.is_text() ? b.find(key.as_text().bytes()) : nullptr;
      same = other && equal(value, *other);
    }
    return same;
  }
  return a.is_undefined() || a.is_none();
}

int compare(const Value& a, const Value& b) {
  auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_number() && b.is_number()) return sign(a.as_number(), b.as_number());
  if (a.is_text() && b.is_text()) return sign(a.as_text().bytes(), b.as_text().bytes());
  if (a.is_sequence() && b.is_sequence()) {
    const auto &x = a.as_list(), &y = b.as_list();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (int order = compare(x[i], y[i])) return order;
    }
    return sign(x.size(), y.size());
  }
  if (a.is_undefined() || b.is_undefined()) throw Error((a.is_undefined() ? a : b).what());
  throw Error(fmt::format("{} and {} cannot be ordered", a.type_name(), b.type_name()));
}

bool contains(const Value& container, const Value& item) {
  if (container.is_text()) return container.as_text().bytes().find(item.as_text().bytes()) != std::string::npos;
  if (container.kind() == Value::Kind::kDict) return item.is_text() && container.find(item.as_text().bytes());
  for (const auto& element : container.iterate()) {
    if (equal(element, item)) return true;
  }
  return false;
}

}  // namespace vlmtune::jinja
