// Template text to tokens, with Jinja's white-space control as transformers sets it (trim_blocks, lstrip_blocks).
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune::jinja {

struct Token {
  enum class Kind {
    kData,
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;  // of a string: its value
  int line;
};

/// Errors: Error with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace vlmtune::jinja
