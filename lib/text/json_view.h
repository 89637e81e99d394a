// JSON values that know their place, so that every complaint names file and JSON pointer.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/errors.h"

namespace vlmtune {

/// A value inside a parsed document, which it keeps alive.
class JsonView {
 public:
  /// Errors: input_error with file and position for anything but one JSON document, or one nested deeper than 200.
  static JsonView parse_file(const std::filesystem::path& path);
  static JsonView parse(std::string_view text, const std::string& origin);

  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_bool() const;
  bool is_number() const;

  /// The member, which must be there.
  JsonView at(std::string_view key) const;
  /// The member, or nothing when it is absent or null.
  std::optional<JsonView> find(std::string_view key) const;
  size_t size() const;
  JsonView item(size_t index) const;
  void each_item(const std::function<void(const JsonView&)>& visit) const;
  void each_member(const std::function<void(const std::string&, const JsonView&)>& visit) const;
  /// An object of integers, without making a view of each.
  void each_integer(const std::function<void(const std::string&, int64_t)>& visit) const;

  std::string as_string() const;
  bool as_bool() const;
  int64_t as_integer() const;
  double as_number() const;

  std::string string_or(std::string_view key, std::string_view fallback) const;
  bool bool_or(std::string_view key, bool fallback) const;
  /// The member "type".
  std::string type() const;

  /// An error at this place: "<file>: at <pointer>: <message>".
  UserError error(const std::string& message) const;
  const std::string& origin() const;

 private:
  struct Document;
  JsonView(std::shared_ptr<const Document> document, const void* node, std::string pointer)
      : document_(std::move(document)), node_(node), pointer_(std::move(pointer)) {}
  std::shared_ptr<const Document> document_;
  const void* node_;
  std::string pointer_;
};

}  // namespace vlmtune
