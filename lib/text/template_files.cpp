#include "lib/text/template_files.h"

#include "lib/base/files.h"
#include "lib/text/json_view.h"
#include "lib/text/tokenizer_files.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// "chat_template": a string, or a list of {"name", "template"} of which "default" counts, or an object of them.
std::optional<std::string> template_in(const JsonView& config) {
  auto value = config.find("chat_template");
  if (!value) return std::nullopt;
  if (value->is_string()) return value->as_string();
  std::optional<std::string> chosen, first;
  auto offer = [&](const std::string& name, const std::string& source) {
    if (!first) first = source;
    if (name == "default") chosen = source;
  };
  if (value->is_array()) {
    value->each_item([&](const JsonView& one) { offer(one.at("name").as_string(), one.at("template").as_string()); });
  } else {
    value->each_member([&](const std::string& name, const JsonView& source) { offer(name, source.as_string()); });
  }
  return chosen ? chosen : first;
}

/// "<s>" or {"content": "<s>"}; `mentioned` also when it is null.
void read_token(const JsonView& config, const char* key, std::string& token) {
  config.each_member([&](const std::string& name, const JsonView& value) {
    if (name != key) return;
    if (value.is_null())
      token.clear();
    else if (value.is_object())
      token = value.string_or("content", "");
    else
      token = value.as_string();
  });
}

}  // namespace

std::optional<TemplateFile> find_checkpoint_template(const fs::path& dir) {
  if (auto path = dir / "chat_template.jinja"; is_file(path)) return TemplateFile{read_file(path), path.string()};
  for (const char* name : {"chat_template.json", "processor_config.json", "tokenizer_config.json"}) {
    auto path = dir / name;
    if (!is_file(path)) continue;
    if (auto source = template_in(JsonView::parse_file(path))) return TemplateFile{*source, path.string()};
  }
  return std::nullopt;
}

std::optional<TemplateFile> read_template_file(const fs::path& dir, const std::string& name) {
  for (const auto& path : {fs::path(name), dir / name}) {
    if (is_file(path)) return TemplateFile{read_file(path), path.string()};
  }
  return std::nullopt;
}

TemplateTokens read_template_tokens(const fs::path& dir, const TemplateTokens& defaults) {
  TemplateTokens tokens = defaults;
  std::string tokenizer_class, model_type;
  std::optional<JsonView> config, map, processor;
  auto read = [&](const char* name) {
    return is_file(dir / name) ? std::optional(JsonView::parse_file(dir / name)) : std::nullopt;
  };
  config = read("tokenizer_config.json"), processor = read("processor_config.json");
  bool lists_added = config && config->find("added_tokens_decoder");
  if (!lists_added) map = read("special_tokens_map.json");
  if (config) tokenizer_class = config->string_or("tokenizer_class", "");
  if (auto model = read("config.json")) model_type = model->string_or("model_type", "");
  auto reference =
      is_file(dir / "tokenizer.json") ? reference_class(tokenizer_class, model_type) : ReferenceClass::kLlama;
  if (reference == ReferenceClass::kAsWritten)
    tokens.bos_token.clear(), tokens.eos_token.clear(), tokens.unk_token.clear();
  if (reference == ReferenceClass::kGpt2) tokens.bos_token = tokens.eos_token = tokens.unk_token = "<|endoftext|>";
  if (reference == ReferenceClass::kQwen2)
    tokens.bos_token.clear(), tokens.eos_token = tokens.unk_token = tokens.pad_token = "<|endoftext|>";
  for (const auto* source : {&config, &map}) {
    if (!*source) continue;
    read_token(**source, "bos_token", tokens.bos_token), read_token(**source, "eos_token", tokens.eos_token);
    read_token(**source, "unk_token", tokens.unk_token), read_token(**source, "pad_token", tokens.pad_token);
    read_token(**source, "image_token", tokens.image_token);
    if (auto extra = (*source)->find("extra_special_tokens"); extra && extra->is_object())
      read_token(*extra, "image_token", tokens.image_token);
  }
  if (processor) read_token(*processor, "image_token", tokens.image_token);
  if (tokens.image_token.empty()) tokens.image_token = defaults.image_token;
  return tokens;
}

}  // namespace vlmtune
