// The conversation formats that need no checkpoint to bring them.
#pragma once
#include <string>
#include <vector>

namespace vlmtune {

struct BuiltinTemplate {
  std::string name;
  std::string source;
  bool plain = false;  ///< captions: the newline behind an answer belongs to the answer
};

/// nullptr for an unknown name.
const BuiltinTemplate* find_builtin_template(const std::string& name);
std::vector<std::string> builtin_template_names();

}  // namespace vlmtune
