#include "lib/recipe/document.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

constexpr size_t kMaxDepth = 64;  // far above any recipe; keeps every later recursion shallow

std::string position_text(std::string_view text, size_t offset) {
  const auto before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const auto start = before.rfind('\n');
  return fmt::format("{}:{}", line, before.size() - (start == std::string_view::npos ? 0 : start + 1));
}

/// Builds a Value from the parser's events; the stack holds the open objects and lists with the key they go to.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}
  Value take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return add(static_cast<double>(value));
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(double{value}); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Object{}); }
  bool start_array(size_t) override { return open(Array{}); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (stack_.back().value.object()->find(name) != nullptr)
      throw usage_error("{}: the key \"{}\" is given twice in one object", origin_, name);
    (*stack_.back().value.object())[name];  // holds the place, so that a second use is seen
    stack_.back().key = name;
    return true;
  }
  bool parse_error(size_t offset, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception...] parse error at line 3, column 5: syntax error while ..." -> the part after the place
    std::string_view reason = error.what();
    for (const std::string_view skip : {"] ", ": "}) {
      const auto at = reason.find(skip);
      if (at != std::string_view::npos) reason.remove_prefix(at + skip.size());
    }
    throw usage_error("{}:{}: {}", origin_, position_text(text_, offset), reason);
  }

 private:
  struct Open {
    Value value;
    std::string key;
  };

  bool add(Value value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = stack_.back().value.array()) {
      array->push_back(std::move(value));
    } else {
      (*stack_.back().value.object())[stack_.back().key] = std::move(value);
    }
    return true;
  }
  bool open(Value value) {
    if (stack_.size() >= kMaxDepth) throw usage_error("{}: nested deeper than {} levels", origin_, kMaxDepth);
    stack_.push_back({std::move(value), {}});
    return true;
  }
  bool close() {
    Value value = std::move(stack_.back().value);
    stack_.pop_back();
    return add(std::move(value));
  }

  std::string_view text_, origin_;
  std::vector<Open> stack_;
  Value root_;
};

std::string scalar_text(const Value& value) {
  if (const auto* boolean = value.boolean()) return *boolean ? "true" : "false";
  if (const auto* integer = value.integer()) return fmt::format("{}", *integer);
  if (const auto* real = value.real()) return std::isfinite(*real) ? fmt::format("{}", *real) : "null";
  if (const auto* text = value.text())
    return nlohmann::json(*text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return "null";
}

bool is_plain(const Value& value) { return value.array() == nullptr && value.object() == nullptr; }

/// `indent` is the current depth in spaces; negative: everything on one line.
void append_text(std::string& out, const Value& value, int indent) {
  const auto* array = value.array();
  const auto* object = value.object();
  if (is_plain(value)) {
    out += scalar_text(value);
    return;
  }
  const bool empty = array != nullptr ? array->empty() : object->empty();
  const bool one_line =
      indent < 0 || empty || (array != nullptr && std::all_of(array->begin(), array->end(), [](const Value& element) {
                                return is_plain(element) || element.array() != nullptr;
                              }));
  const int inner = one_line ? -1 : indent + 2;
  const std::string separator = one_line ? "" : "\n" + std::string(static_cast<size_t>(inner), ' ');
  bool first = true;
  const auto begin_member = [&] {
    if (!first) out += one_line ? ", " : ",";
    first = false;
    out += separator;
  };
  out += array != nullptr ? '[' : '{';
  if (array != nullptr) {
    for (const auto& element : *array) {
      begin_member();
      append_text(out, element, inner);
    }
  } else {
    for (const auto& [key, member] : *object) {
      begin_member();
      out += scalar_text(key) + ": ";
      append_text(out, member, inner);
    }
  }
  if (!one_line) out += "\n" + std::string(static_cast<size_t>(indent), ' ');
  out += array != nullptr ? ']' : '}';
}

}  // namespace

Object::Object() = default;
Object::Object(const Object&) = default;
Object::Object(Object&&) noexcept = default;
Object& Object::operator=(const Object&) = default;
Object& Object::operator=(Object&&) noexcept = default;
Object::~Object() = default;
bool Object::operator==(const Object& other) const = default;
const Member* Object::begin() const { return members_.data(); }
const Member* Object::end() const { return members_.data() + members_.size(); }
Member* Object::begin() { return members_.data(); }
Member* Object::end() { return members_.data() + members_.size(); }

const Value* Object::find(std::string_view key) const {
  for (const auto& [name, value] : members_)
    if (name == key) return &value;
  return nullptr;
}

Value* Object::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

Value& Object::operator[](std::string_view key) {
  if (Value* found = find(key)) return *found;
  return members_.emplace_back(Member{std::string(key), Value{}}).value;
}

void Object::erase(std::string_view key) {
  std::erase_if(members_, [&](const Member& member) { return member.key == key; });
}

bool Value::operator==(const Value& other) const {
  if (integer() != nullptr && other.real() != nullptr) return static_cast<double>(*integer()) == *other.real();
  if (real() != nullptr && other.integer() != nullptr) return *real() == static_cast<double>(*other.integer());
  return data_ == other.data_;
}

Value parse_document(std::string_view text, std::string_view origin) {
  Builder builder(text, origin);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder, nlohmann::json::input_format_t::json, true, true);
  return builder.take();
}

std::string pretty_text(const Value& value) {
  std::string out;
  append_text(out, value, 0);
  return out;
}

std::string inline_text(const Value& value) {
  std::string out;
  append_text(out, value, -1);
  return out;
}

}  // namespace vlmtune
