#include "lib/recipe/parser.h"

#include <algorithm>

#include "lib/recipe/availability.h"
#include "lib/recipe/codec.h"
#include "lib/recipe/recipe_keys.h"

namespace vlmtune {
namespace {

/// Reads one object of the document into one struct.
class Reader {
 public:
  Reader(const Object& object, std::string pointer, const std::string& origin, unsigned command)
      : object_(object), pointer_(std::move(pointer)), origin_(origin), command_(command) {}

  template <typename T>
  void operator()(const Field& field, T& member) {
    names_.emplace_back(field.key);
    const Value* value = object_.find(field.key);
    if (value != nullptr) read(*value, pointer_ + "/" + std::string(field.key), field, member);
  }

  /// Called after the walk: whatever was not asked for is a misspelling.
  void refuse_unknown_keys() const {
    for (const auto& [key, value] : object_)
      if (std::find(names_.begin(), names_.end(), key) == names_.end())
        throw usage_error("{}: {}/{}: unknown key{}", origin_, pointer_, key, suggest_key(key, pointer_, names_));
  }

 private:
  template <Section T>
  void read(const Value& value, const std::string& pointer, const Field&, T& member) {
    if (value.object() == nullptr) refuse(pointer, value, "an object");
    read_object(*value.object(), pointer, member);
  }
  template <Section T>
  void read(const Value& value, const std::string& pointer, const Field& field, std::optional<T>& member) {
    if (value.is_null()) {
      member.reset();
      return;
    }
    if (!member) member.emplace();
    read(value, pointer, field, *member);
  }
  template <Section T>
  void read(const Value& value, const std::string& pointer, const Field& field, std::vector<T>& member) {
    if (value.array() == nullptr) {
      if constexpr (std::is_same_v<T, DataSource>) {  // a single file needs no brackets
        member.resize(1);
        read_element(value, pointer, field, member[0]);
        return;
      }
      refuse(pointer, value, "a list");
    }
    member.assign(value.array()->size(), T{});
    for (size_t i = 0; i < member.size(); ++i)
      read_element((*value.array())[i], fmt::format("{}/{}", pointer, i), field, member[i]);
  }
  template <Section T>
  void read(const Value& value, const std::string& pointer, const Field& field, std::optional<std::vector<T>>& member) {
    refuse_unavailable(value, pointer, field);
    member.reset();
    if (!value.is_null()) read(value, pointer, field, member.emplace());
  }
  template <typename T>
  void read(const Value& value, const std::string& pointer, const Field& field, T& member) {
    if constexpr (std::is_same_v<T, Reserved>) refuse_unavailable(value, pointer, field);
    auto setting = Codec<T>::read(value, field);
    if (!setting) refuse(pointer, value, Codec<T>::expected(field));
    refuse_unavailable(value, pointer, field);
    member = std::move(*setting);
  }

  template <typename T>
  void read_element(const Value& value, const std::string& pointer, const Field& field, T& member) {
    if constexpr (std::is_same_v<T, DataSource>) {
      if (value.text() != nullptr) {
        member.path = *value.text();
      } else if (value.object() != nullptr) {
        read(value, pointer, field, member);
      } else {
        refuse(pointer, value, "a file name or {\"path\", \"weight\"}");
      }
      if (member.path.empty()) refuse(pointer, value, "a file name");
    } else {
      read(value, pointer, field, member);
    }
  }
  template <typename T>
  void read_object(const Object& object, const std::string& pointer, T& member) {
    Reader reader(object, pointer, origin_, command_);
    visit_fields(reader, member);
    reader.refuse_unknown_keys();
  }

  void refuse_unavailable(const Value& value, const std::string& pointer, const Field& field) const {
    if ((field.used_by & command_) == 0) return;
    if (const auto* row = find_unavailable(pointer, value))
      throw usage_error("{}: {}: {} is not available yet, this version can do {}", origin_, pointer, shown(value),
                        alternatives(row->works));
  }
  [[noreturn]] void refuse(const std::string& pointer, const Value& value, const std::string& expected) const {
    throw usage_error("{}: {}: found {}, expected {}", origin_, pointer, shown(value), expected);
  }
  static std::string shown(const Value& value) {
    const auto text = inline_text(value);
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  const Object& object_;
  const std::string pointer_;
  const std::string& origin_;
  const unsigned command_;
  std::vector<std::string> names_;
};

/// Writes a struct as an object.
struct Writer {
  Object object;

  template <typename T>
  void operator()(const Field& field, T& member) {
    object[field.key] = write(member);
  }

 private:
  template <Section T>
  static Value write(T& member) {
    Writer writer;
    visit_fields(writer, member);
    return writer.object;
  }
  template <Section T>
  static Value write(std::optional<T>& member) {
    return member ? write(*member) : Value();
  }
  template <Section T>
  static Value write(std::vector<T>& member) {
    Array array;
    for (auto& element : member) array.push_back(write(element));
    return array;
  }
  template <Section T>
  static Value write(std::optional<std::vector<T>>& member) {
    return member ? write(*member) : Value();
  }
  template <typename T>
  static Value write(T& member) {
    return Codec<T>::write(member);
  }
};

/// Looks for settings of the document that the command does not use.
struct UnusedFinder {
  const Object& object;
  const Object* defaults;
  unsigned command;
  std::string prefix;
  std::vector<std::string> unused;

  template <typename T>
  void operator()(const Field& field, T& member) {
    const Value* value = object.find(field.key);
    const Value* usual = defaults != nullptr ? defaults->find(field.key) : nullptr;
    if (value == nullptr || (usual != nullptr && *value == *usual)) return;
    const auto name = prefix + std::string(field.key);
    if (value->object() == nullptr || std::is_same_v<T, Hardware>) {
      if ((field.used_by & command) == 0) unused.push_back(name);
    } else if constexpr (Section<T>) {
      descend(field, *value->object(), usual, name, member);
    } else if constexpr (std::is_same_v<T, std::optional<LoraRecipe>>) {
      LoraRecipe lora;
      descend(field, *value->object(), usual, name, lora);
    }
  }
  template <typename T>
  void descend(const Field& field, const Object& inner, const Value* usual, const std::string& name, T& member) {
    UnusedFinder finder{inner, usual != nullptr ? usual->object() : nullptr, command, name + ".", {}};
    visit_fields(finder, member);
    if ((field.used_by & command) == 0 && !finder.unused.empty()) finder.unused = {name};
    unused.insert(unused.end(), finder.unused.begin(), finder.unused.end());
  }
};

}  // namespace

void read_fields(const Object& document, const std::string& origin, Command command, Recipe& recipe) {
  Reader reader(document, "", origin, command_bit(command));
  visit_fields(reader, recipe);
  reader.refuse_unknown_keys();
}

void read_hardware_fields(const Object& document, const std::string& origin, Hardware& hardware) {
  Reader reader(document, "", origin, kByAll);
  visit_fields(reader, hardware);
  reader.refuse_unknown_keys();
}

std::vector<std::string> unused_settings(const Object& document, Command command, const Object& defaults) {
  Recipe recipe;
  UnusedFinder finder{document, &defaults, command_bit(command), "", {}};
  visit_fields(finder, recipe);
  return finder.unused;
}

Object write_fields(const Recipe& recipe) {
  Recipe copy = recipe;  // the walk is written for members that may be set
  Writer writer;
  visit_fields(writer, copy);
  return writer.object;
}

}  // namespace vlmtune
