#include "lib/text/jinja/template.h"

#include "lib/base/errors.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/parser.h"
#include "lib/text/unicode.h"

namespace vlmtune::jinja {

struct Template::Parsed {
  Block block;
};

Template::Template(const std::string& source, std::string origin) : origin_(std::move(origin)) {
  constexpr size_t kMaxSource = 1 << 20;
  if (source.size() > kMaxSource)
    throw input_error("{}: a chat template of {} bytes, expected at most {}", origin_, source.size(), kMaxSource);
  if (auto bad = find_invalid_utf8(source)) throw input_error("{}: not UTF-8 at byte {}", origin_, *bad);
  try {
    parsed_ = std::make_unique<const Parsed>(Parsed{parse(source)});
  } catch (const Error& error) {
    throw input_error("{}: chat template, line {}: {}", origin_, error.line, error.what());
  }
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

Text Template::render(const std::unordered_map<std::string, Value>& variables) const {
  try {
    return run(parsed_->block, variables);
  } catch (const Error& error) {
    throw input_error("{}: chat template, line {}: {}", origin_, error.line, error.what());
  }
}

}  // namespace vlmtune::jinja
