#include "lib/text/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>

#include "lib/base/errors.h"
#include "lib/text/builtin_templates.h"
#include "lib/text/jinja/template.h"
#include "lib/text/template_files.h"
#include "lib/text/unicode.h"

namespace vlmtune {

using jinja::Value;

namespace {

/// Whether a role's content is handed over as a list of parts.
struct ContentForms {
  bool system = false, user = false, assistant = false;
  bool is_list(const std::string& role) const {
    return role == "system" ? system : role == "assistant" ? assistant : user;
  }
};

/// A picture or video as templates spell it that know neither.
std::string bracketed(const TemplateTokens& tokens, MessagePart::Kind kind) {
  return tokens.image_before + (kind == MessagePart::Kind::kVideo ? tokens.video_token : tokens.image_token) +
         tokens.image_after;
}

Value content_value(const Message& message, int index, bool as_list, const TemplateTokens& tokens) {
  using Kind = MessagePart::Kind;
  if (as_list) {
    jinja::List parts;
    for (const auto& part : message.parts) {
      const char* type = part.kind == Kind::kImage ? "image" : part.kind == Kind::kVideo ? "video" : "text";
      jinja::Dict dict = {{Value::text("type"), Value::text(type)}};
      if (part.kind == Kind::kText) dict.emplace_back(Value::text("text"), Value::text(jinja::Text(part.text, index)));
      parts.push_back(Value::dict(std::move(dict)));
    }
    return Value::list(std::move(parts));
  }
  jinja::Text text;
  for (size_t i = 0; i < message.parts.size(); ++i) {
    const auto& part = message.parts[i];
    if (part.kind == Kind::kText)
      text.append(part.text, index);
    else
      text.append(bracketed(tokens, part.kind) + (i + 1 < message.parts.size() ? "\n" : ""), jinja::kTemplateSource);
  }
  return Value::text(std::move(text));
}

/// Whether every message has a part in the text, and no list was printed as text.
bool shows_all(const jinja::Text& text, size_t num_messages) {
  std::vector<bool> shown(num_messages, false);
  std::string written_by_template;
  size_t begin = 0;
  for (const auto& run : text.runs()) {
    if (run.source == jinja::kTemplateSource)
      written_by_template += text.bytes().substr(begin, run.end - begin) + "\n";
    else
      shown[static_cast<size_t>(run.source)] = true;
    begin = run.end;
  }
  bool printed_list = written_by_template.find("'type'") != std::string::npos ||
                      written_by_template.find("\"type\"") != std::string::npos;
  return !printed_list && std::all_of(shown.begin(), shown.end(), [](bool one) { return one; });
}

}  // namespace

struct ChatTemplate::State {
  std::optional<jinja::Template> code;
  std::string origin;
  TemplateTokens tokens;
  ContentForms forms;
  bool builtin = false, plain = false;

  jinja::Text run(const std::vector<Message>& messages, bool add_generation_prompt, const ContentForms& how) const {
    if (!code) throw input_error("the checkpoint has no chat template; choose one by model.chat_template");
    jinja::List list;
    for (size_t i = 0; i < messages.size(); ++i) {
      const auto& message = messages[i];
      for (const auto& part : message.parts) {
        if (auto bad = find_invalid_utf8(part.text)) throw input_error("message {}: not UTF-8 at byte {}", i + 1, *bad);
      }
      auto index = static_cast<int>(i);
      jinja::Dict dict = {{Value::text("role"), Value::text(message.role)},
                          {Value::text("content"), content_value(message, index, how.is_list(message.role), tokens)}};
      if (plain) dict.emplace_back(Value::text("newline"), Value::text(jinja::Text("\n", index)));
      list.push_back(Value::dict(std::move(dict)));
    }
    std::unordered_map<std::string, Value> variables = {
        {"messages", Value::list(std::move(list))},
        {"add_generation_prompt", Value::boolean(add_generation_prompt)},
        {"tools", Value::none()},
        {"documents", Value::none()}};
    auto put = [&](const char* name, const std::string& token) {
      if (!token.empty()) variables[name] = Value::text(token);
    };
    put("bos_token", tokens.bos_token), put("eos_token", tokens.eos_token), put("unk_token", tokens.unk_token);
    put("pad_token", tokens.pad_token),
        put("image_token", builtin ? bracketed(tokens, MessagePart::Kind::kImage) : tokens.image_token);
    put("video_token", builtin ? bracketed(tokens, MessagePart::Kind::kVideo) : tokens.video_token);
    return code->render(variables);
  }

  /// Tries the forms on a short conversation; see the class comment. All lists first, then fewer of them.
  void choose_forms() {
    auto message = [](const char* role) { return Message{role, {{MessagePart::Kind::kText, "trial"}}}; };
    for (bool with_system : {true, false}) {
      std::vector<Message> trial;
      if (with_system) trial.push_back(message("system"));
      trial.push_back(message("user")), trial.push_back(message("assistant"));
      for (int bits = 7; bits >= 0; --bits) {
        ContentForms how{(bits & 1) != 0, (bits & 4) != 0, (bits & 2) != 0};
        try {
          if (!shows_all(run(trial, false, how), trial.size())) continue;
          forms = how;
          return;
        } catch (const UserError&) {
          continue;
        }
      }
    }
  }
};

ChatTemplate::ChatTemplate() : state_(std::make_shared<const State>()) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(const ChatTemplate&) = default;
ChatTemplate& ChatTemplate::operator=(const ChatTemplate&) = default;

ChatTemplate ChatTemplate::from_source(const std::string& source, const std::string& origin,
                                       const TemplateTokens& tokens) {
  auto state = std::make_shared<State>();
  state->code.emplace(source, origin);
  state->origin = origin;
  state->tokens = tokens;
  state->choose_forms();
  ChatTemplate result;
  result.state_ = state;
  return result;
}

ChatTemplate ChatTemplate::named(const std::string& name, const TemplateTokens& tokens) {
  const auto* builtin = find_builtin_template(name);
  if (!builtin) {
    std::string names;
    for (const auto& one : builtin_template_names()) names += (names.empty() ? "" : ", ") + one;
    throw input_error("unknown chat template \"{}\", expected one of {}, or a template file", name, names);
  }
  auto state = std::make_shared<State>();
  state->origin = "built-in " + builtin->name;
  state->code.emplace(builtin->source, state->origin);
  state->tokens = tokens;
  state->builtin = true;
  state->plain = builtin->plain;
  state->forms = {true, true, true};
  ChatTemplate result;
  result.state_ = state;
  return result;
}

ChatTemplate ChatTemplate::from_checkpoint(const std::filesystem::path& dir, const std::string& override_name,
                                           const TemplateTokens& defaults) {
  auto tokens = read_template_tokens(dir, defaults);
  if (!override_name.empty() && find_builtin_template(override_name)) return named(override_name, tokens);
  auto file = override_name.empty() ? find_checkpoint_template(dir) : read_template_file(dir, override_name);
  if (file) return from_source(file->source, file->origin, tokens);
  if (!override_name.empty()) return named(override_name, tokens);  // throws, with the names
  ChatTemplate result;
  auto state = std::make_shared<State>();
  state->tokens = tokens;
  result.state_ = state;
  return result;
}

bool ChatTemplate::empty() const { return !state_->code.has_value(); }
const std::string& ChatTemplate::origin() const { return state_->origin; }
const std::string& ChatTemplate::image_token() const { return state_->tokens.image_token; }
bool ChatTemplate::answers_end_themselves() const { return state_->plain; }

std::string ChatTemplate::render_text(const std::vector<Message>& messages, bool add_generation_prompt) const {
  return state_->run(messages, add_generation_prompt, state_->forms).bytes();
}

void ChatTemplate::check_slots(const std::vector<PromptSpan>& spans, const std::vector<Message>& messages,
                               SpanKind slot, MessagePart::Kind kind, const char* name) const {
  const auto slots = std::count_if(spans.begin(), spans.end(), [&](const auto& span) { return span.kind == slot; });
  std::ptrdiff_t wanted = 0;
  for (const auto& message : messages)
    wanted += std::count_if(message.parts.begin(), message.parts.end(), [&](const auto& p) { return p.kind == kind; });
  if (slots != wanted)
    throw input_error("{}: the chat template writes {} {} slots for {} {}s", state_->origin, slots, name, wanted, name);
}

std::vector<PromptSpan> ChatTemplate::render(const std::vector<Message>& messages, bool add_generation_prompt) const {
  auto text = state_->run(messages, add_generation_prompt, state_->forms);
  const std::array<std::pair<SpanKind, const std::string&>, 2> tokens{
      {{SpanKind::kImage, state_->tokens.image_token}, {SpanKind::kVideo, state_->tokens.video_token}}};
  std::vector<PromptSpan> spans;
  size_t begin = 0;
  auto put_control = [&](std::string_view part) {
    if (!part.empty()) spans.push_back({SpanKind::kControl, std::string(part), -1});
  };
  for (const auto& run : text.runs()) {
    auto part = std::string_view(text.bytes()).substr(begin, run.end - begin);
    begin = run.end;
    if (run.source != jinja::kTemplateSource) {
      bool answer = messages[static_cast<size_t>(run.source)].role == "assistant";
      spans.push_back({answer ? SpanKind::kAnswer : SpanKind::kText, std::string(part), run.source});
      continue;
    }
    while (true) {
      size_t first = std::string_view::npos, length = 0;
      SpanKind kind = SpanKind::kImage;
      for (const auto& [of, token] : tokens)
        if (const size_t found = token.empty() ? first : part.find(token); found < first)
          first = found, length = token.size(), kind = of;
      if (first == std::string_view::npos) break;
      put_control(part.substr(0, first));
      spans.push_back({kind, "", -1});
      part.remove_prefix(first + length);
    }
    put_control(part);
  }
  check_slots(spans, messages, SpanKind::kImage, MessagePart::Kind::kImage, "image");
  check_slots(spans, messages, SpanKind::kVideo, MessagePart::Kind::kVideo, "video");
  return spans;
}

}  // namespace vlmtune
