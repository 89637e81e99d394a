// Where a checkpoint keeps its chat template and the tokens that it writes.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "lib/text/chat_template.h"

namespace vlmtune {

struct TemplateFile {
  std::string source, origin;
};

/// chat_template.jinja, chat_template.json, processor_config.json, tokenizer_config.json; nothing when none has one.
std::optional<TemplateFile> find_checkpoint_template(const std::filesystem::path& dir);
/// `name` as a path, or as a file inside `dir`; nothing when there is none.
std::optional<TemplateFile> read_template_file(const std::filesystem::path& dir, const std::string& name);
/// bos_token and the like as the tokenizer's files say, and the image token of the processor.
TemplateTokens read_template_tokens(const std::filesystem::path& dir, const TemplateTokens& defaults);

}  // namespace vlmtune
