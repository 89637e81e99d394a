// A compiled template.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "lib/text/jinja/value.h"

namespace vlmtune::jinja {

/// The subset of Jinja2 that chat templates use, with transformers' settings and functions. Immutable, shared between
/// threads.
class Template {
 public:
  /// `origin` names the template in errors. Errors: input_error with origin and line.
  Template(const std::string& source, std::string origin);
  ~Template();
  Template(Template&&) noexcept;

  /// Errors: input_error with origin and line, also when the template calls raise_exception().
  Text render(const std::unordered_map<std::string, Value>& variables) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
  std::string origin_;
};

}  // namespace vlmtune::jinja
