#include "lib/text/builtin_templates.h"

#include <algorithm>
#include <utility>

namespace vlmtune {
namespace {

// The parts of a message in their order; one newline belongs to an image or a video.
#define CONTENT_MACRO                                                                  \
  "{%- macro content(message) -%}{%- for part in message.content -%}"                  \
  "{%- if part.type == 'image' -%}{{ image_token }}{{ '' if loop.last else '\\n' }}"   \
  "{%- elif part.type == 'video' -%}{{ video_token }}{{ '' if loop.last else '\\n' }}" \
  "{%- else -%}{{ part.text }}{%- endif -%}"                                           \
  "{%- endfor -%}{%- endmacro -%}"

#define FIND_SYSTEM(fallback)                         \
  "{%- set ns = namespace(system='" fallback          \
  "', first=true) -%}{%- for message in messages -%}" \
  "{%- if message.role == 'system' -%}{%- set ns.system = content(message) -%}{%- endif -%}{%- endfor -%}"

#define REFUSE_OTHER_ROLES                                                                                        \
  "{%- elif message.role != 'system' -%}{{ raise_exception('the roles are system, user and assistant, found ' + " \
  "message.role) }}{%- endif -%}"

// LLaVA conversation.py, SeparatorStyle.TWO: "system USER: q ASSISTANT: a</s>USER: q ASSISTANT:".
constexpr const char* kVicunaV1 = CONTENT_MACRO FIND_SYSTEM(
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite "
    "answers to the user\\'s questions.") R"(
{{- ns.system + ' ' -}}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{{ 'USER: ' }}{{ content(message) }}{{ ' ' }}
{%- elif message.role == 'assistant' -%}{{ 'ASSISTANT: ' }}{{ content(message) }}{{ eos_token }}
)" REFUSE_OTHER_ROLES "{%- endfor -%}{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}";

// SeparatorStyle.LLAMA_2. The first <s> is left to the tokenizer, as LLaVA does.
constexpr const char* kLlavaLlama2 = CONTENT_MACRO FIND_SYSTEM(
    "You are a helpful language and vision assistant. You are able to understand the visual content that the user "
    "provides, and assist the "
    "user with a variety of tasks using natural language.") R"(
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{{- '' if ns.first else bos_token }}{{ '[INST] ' }}
{%- if ns.first and ns.system -%}{{ '<<SYS>>\n' + ns.system + '\n<</SYS>>\n\n' }}{%- endif -%}
{{- content(message) }}{{ ' [/INST]' }}{%- set ns.first = false -%}
{%- elif message.role == 'assistant' -%}{{ ' ' }}{{ content(message) }}{{ ' ' ~ eos_token }}
)" REFUSE_OTHER_ROLES "{%- endfor -%}";

// LLaVA's mistral_instruct: the same without system text and without <s> between the rounds.
constexpr const char* kLlavaMistral = CONTENT_MACRO FIND_SYSTEM("") R"(
{%- for message in messages -%}
{%- if message.role == 'user' -%}{{ '[INST] ' }}
{%- if ns.first and ns.system -%}{{ '<<SYS>>\n' + ns.system + '\n<</SYS>>\n\n' }}{%- endif -%}
{{- content(message) }}{{ ' [/INST]' }}{%- set ns.first = false -%}
{%- elif message.role == 'assistant' -%}{{ ' ' }}{{ content(message) }}{{ ' ' ~ eos_token }}
)" REFUSE_OTHER_ROLES "{%- endfor -%}";

// Meta's Llama-2 chat format as transformers renders it.
constexpr const char* kLlama2 = CONTENT_MACRO FIND_SYSTEM("") R"(
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{%- set text = content(message) -%}
{%- if ns.first and ns.system -%}{%- set text = '<<SYS>>\n' + ns.system + '\n<</SYS>>\n\n' + text -%}{%- endif -%}
{{- bos_token ~ '[INST] ' ~ text.strip() ~ ' [/INST]' }}{%- set ns.first = false -%}
{%- elif message.role == 'assistant' -%}{{ ' ' ~ content(message).strip() ~ ' ' ~ eos_token }}
)" REFUSE_OTHER_ROLES "{%- endfor -%}";

// Mistral-7B-Instruct-v0.2 as transformers renders it.
constexpr const char* kMistral = CONTENT_MACRO FIND_SYSTEM("") R"(
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{{ '[INST] ' }}
{%- if ns.first and ns.system -%}{{ ns.system + '\n\n' }}{%- endif -%}
{{- content(message) }}{{ ' [/INST]' }}{%- set ns.first = false -%}
{%- elif message.role == 'assistant' -%}{{ content(message) }}{{ eos_token }}
)" REFUSE_OTHER_ROLES "{%- endfor -%}";

constexpr const char* kChatml = CONTENT_MACRO R"(
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' }}{{ content(message) }}{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})";

// LLaVA's chatml_direct (LLaVA-1.6-34B), SeparatorStyle.MPT: no newline behind <|im_end|>.
constexpr const char* kChatmlDirect = CONTENT_MACRO FIND_SYSTEM("Answer the questions.") R"(
{{- '<|im_start|>system\n' + ns.system + '<|im_end|>' -}}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{{ '<|im_start|>user\n' }}{{ content(message) }}{{ '<|im_end|>' }}
{%- elif message.role == 'assistant' -%}{{ '<|im_start|>assistant\n' }}{{ content(message) }}{{ '<|im_end|>' }}
)" REFUSE_OTHER_ROLES "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

// The first Qwen-VL's chat format (qwen_generation_utils.py, and from_list_format of its tokenizer).
constexpr const char* kQwenVl = CONTENT_MACRO FIND_SYSTEM("You are a helpful assistant.") R"(
{{- '<|im_start|>system\n' + ns.system + '<|im_end|>\n' -}}
{%- set ns.pictures = 0 -%}
{%- for message in messages if message.role != 'system' -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}{%- set ns.pictures = ns.pictures + 1 -%}
{{- 'Picture ' ~ ns.pictures ~ ': ' ~ image_token ~ '\n' -}}
{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})";

// Stage 1: images, caption, newline; what the user says is left out.
constexpr const char* kPlain = R"(
{%- for message in messages -%}
{%- for part in message.content if part.type == 'image' -%}{{ image_token }}{%- endfor -%}
{%- if message.role == 'assistant' -%}
{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}{{ message.newline }}
{%- endif -%}
{%- endfor -%})";

const std::vector<BuiltinTemplate>& templates() {
  static const std::vector<BuiltinTemplate> all = {
      {"vicuna_v1", kVicunaV1},
      {"llava_llama_2", kLlavaLlama2},
      {"llama-2", kLlama2},
      {"mistral", kMistral},
      {"llava_mistral", kLlavaMistral},
      {"chatml", kChatml},
      {"chatml_direct", kChatmlDirect},
      {"qwen_vl", kQwenVl},
      {"plain", kPlain, true},
  };
  return all;
}

// Spellings of LLaVA's conv_templates and of common tools.
const std::pair<const char*, const char*> kAliases[] = {
    {"v1", "vicuna_v1"},
    {"llava_v1", "vicuna_v1"},
    {"vicuna", "vicuna_v1"},
    {"llama_2", "llama-2"},
    {"llama2", "llama-2"},
    {"mistral_instruct", "llava_mistral"},
    {"mistral_direct", "chatml_direct"},
    {"v0_plain", "plain"},
};

}  // namespace

const BuiltinTemplate* find_builtin_template(const std::string& name) {
  std::string wanted = name;
  for (const auto& [alias, target] : kAliases) {
    if (name == alias) wanted = target;
  }
  auto found =
      std::find_if(templates().begin(), templates().end(), [&](const auto& one) { return one.name == wanted; });
  return found == templates().end() ? nullptr : &*found;
}

std::vector<std::string> builtin_template_names() {
  std::vector<std::string> names;
  for (const auto& one : templates()) names.push_back(one.name);
  return names;
}

}  // namespace vlmtune
