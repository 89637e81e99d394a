"""Chat goldens: templates as published checkpoints carry them, conversations, and what transformers renders."""
import json

from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

ALTERNATE = "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
LLAVA_PARTS = ("{# Render all images first #}{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% endfor %}"
               "{# Render all text next #}")
TEXTS = "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
# name: (template, how content is given to system, user, assistant: "l" list of parts, "s" string)
TEMPLATES = {
    "llava-1.5": ("{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}" + LLAVA_PARTS
                  + "{% if message['role'] != 'assistant' %}" + TEXTS + "{{ content['text'] + ' '}}{% endfor %}{% else %}" + TEXTS
                  + "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}", "lll"),
    "llava-v1.6-mistral": ("{% for message in messages %}{% if message['role'] == 'system' %}{{ '<<SYS>>\\n' + message['content'][0]['text'] + '\\n<</SYS>>\\n\\n' }}"
                           "{% elif message['role'] == 'user' %}{{ '[INST] ' }}" + LLAVA_PARTS + TEXTS + "{{ content['text'] }}{% endfor %}{{' [/INST]' }}"
                           "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'][0]['text'] + '<\\s> '}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}", "lll"),
    "llava-v1.6-34b": ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'}}" + LLAVA_PARTS + TEXTS + "{{ content['text'] }}{% endfor %}{{'<|im_end|>'}}{% endfor %}"
                       "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}", "lll"),
    "qwen2": ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
              "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}", "sss"),
    "qwen2-vl": ("{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
                 "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}{% for content in message['content'] %}"
                 "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}{% set image_count.value = image_count.value + 1 %}{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<image>"
                 "{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "lll"),
    "llama-2": ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
                "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}" + ALTERNATE + "{% endif %}"
                "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
                "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}", "sss"),
    "llama-3": ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
                "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}", "sss"),
    "mistral-v0.2": ("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}" + ALTERNATE + "{% endif %}"
                     "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}", "sss"),
    "smollm2": ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
                "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}", "sss"),
    "smolvlm": ("<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}"
                "{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}", "lll"),
    "phi-3": ("{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}"
              "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}", "sss"),
    "gemma": ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}" + ALTERNATE + "{% endif %}"
              "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}", "sss"),
    "zephyr": ("{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
               "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}", "sss"),
    "macros": ("{%- macro show(m, tag='p') -%}\n<{{ tag }}>{% for c in m.content %}{{ c.text if c.type == 'text' else '<image>' }}{{ '' if loop.last else '|' }}{% endfor %}</{{ tag }}>\n{%- endmacro -%}\n"
               "{%- for m in messages %}\n  {%- if m.role == 'system' %}{{ show(m, tag='s') }}{%- continue %}{%- endif %}\n    {%- set text = show(m) %}\n{{ m.role | title }} {{ loop.index }}/{{ loop.length }}: {{ text.replace('a', 'AA').split('b') | join('B') }}\n{%- endfor %}", "lll"),
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "image_token": "<image>"}
T, I = (lambda text: {"text": text}), {"image": True}
CONVERSATIONS = [
    [("user", [T("Hi there")])],
    [("system", [T("Be brief.")]), ("user", [T("Hi <|im_end|>\n x")]), ("assistant", [T(" Yes it is. ")]), ("user", [T("Why?\n")])],
    [("user", [T("q1")]), ("assistant", [T("a1")]), ("user", [T("q2 \u00e9\u65e5\U0001f642")]), ("assistant", [T("a2 <s> b")])],
    [("user", [I, T("What is this? <image>")]), ("assistant", [T("A cat.")])],
    [("system", [T("Sys")]), ("user", [T("Look: "), I, T(" and "), I, T("?")])],
    [("assistant", [T("first")]), ("system", [T("late")])],
]
# Small templates, each by itself: text or an error.
EXPRESSIONS = [
    "{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 1.5 + 1 }} {{ 10 / 5 }}", "{{ 'a' ~ 1 ~ none ~ true ~ x }}", "{{ 'ab' * 3 }}{{ [1] * 2 }}{{ [1] + [2, 'x'] }}",
    "{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' in 'cat' }} {{ 3 not in [1, 2] }} {{ 'k' in {'k': 1} }} {{ not 1 }}", "{{ 'x' if false }}|{{ 'x' if true else 'y' }}|{{ 1 if 0 else 2 if 0 else 3 }}",
    "{{ x is defined }} {{ x is undefined }} {{ none is none }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} {{ 1 is number }} {{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ 'a' is eq 'a' }} {{ 1 is in [1] }} {{ x is not defined }}",
    "{{ [1, 2, 3][1:] }} {{ 'h\u00e9llo'[1:3] }} {{ 'hello'[::-1] }} {{ [1, 2, 3][-1] }} {{ 'abc'[:-1] }} {{ [1, 2, 3, 4][::2] }} {{ 'abc'[5:] }}", "{{ '  a b  '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ ' a'.lstrip() }}|{{ 'a '.rstrip() }}|{{ 'a,b,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a-b-c'.split('-', 1) }}|{{ 'a-b-c'.rsplit('-', 1) }}",
    "{{ 'Hello World'.upper() }} {{ 'ABC'.lower() }} {{ 'hello world'.title() }} {{ 'hELLO'.capitalize() }} {{ 'stra\u00dfe'.upper() }}", "{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'banana'.replace('a', 'o', 2) }} {{ 'banana'.find('n') }} {{ 'banana'.count('an') }} {{ '-'.join(['a', 'b']) }}",
    "{{ {'a': 1, 'b': [1, none, true, 1.5, 'x\"y']} | tojson }}|{{ {'a': {'b': 1}} | tojson(indent=2) }}|{{ [] | tojson }}|{{ '\u00e9\\n\\t/' | tojson }}", "{{ [{'a': 1}, {'a': 2}] | selectattr('a', 'equalto', 2) | list }} {{ [{'a': 1}, {'a': 2}] | map(attribute='a') | join(', ') }} {{ [1, 2, 3, 4] | select('even') | list }} {{ [1, 2] | reject('odd') | list }} {{ ['a', 'b'] | map('upper') | list }} {{ [{'a': 1}, {}] | rejectattr('a') | list | length }}",
    "{{ x | default('d') }} {{ '' | default('e', true) }} {{ none | default('f') }}", "{{ [3, 1, 2] | sort }} {{ [1, 2] | first }} {{ [1, 2] | last }} {{ 'abc' | length }} {{ ['b', 'a'] | sort(reverse=true) }} {{ [1, 1, 2] | unique | list }} {{ [1, 2] | sum }} {{ [1, 5] | max }} {{ 'abc' | reverse }} {{ {'b': 1, 'a': 2} | dictsort }}",
    "{{ '42' | int + 1 }} {{ '3.7' | int }} {{ 'x' | int(9) }} {{ '2.5' | float }} {{ 3.7 | int }} {{ 5 | string + 'a' }} {{ 2.5 | round }} {{ -3 | abs }}", "{{ ' a ' | trim }}|{{ 'a<b>&' | e }}|{{ 'a\\nb' | indent }}|{{ 'a\\nb\\n' | indent(2, true) }}", "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}{% for c in 'h\u00e9' %}[{{ c }}]{% endfor %}",
    "{% for i in range(5) if i % 2 == 0 %}{{ loop.index }}:{{ i }}{{ ',' if not loop.last }}{% else %}none{% endfor %}{% for i in [] %}{% else %}empty{% endfor %}", "{% for i in range(10) %}{% if i == 3 %}{% break %}{% endif %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{{ loop.revindex }}{{ loop.first }}{{ loop.previtem }} {% endfor %}{% endfor %}{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(n=0, s='') %}{% for i in [1, 2, 3] %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }} {{ ns.s }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = (1, 'x') %}{{ t }}{{ (1,) }}", "{% set block %}\n  text {{ 1 + 1 }}\n{% endset %}[{{ block }}]{% set up | upper %}abc{% endset %}{{ up }}", "{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, b=3) }} {{ f(b=4, a=5) }}", "{% filter upper %}abc {{ 'd' }}{% endfilter %}",
    "a  \n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  {%- if true -%}  \n b \n {%- endif +%}\nc", "  {# comment #}\nx\n {#- y -#} z", "{% raw %}{{ not this }}{% endraw %} {{ '{{' }} {{ \"it's\" }} {{ 'q\\'q' }} {{ 'tab\\there' }} {{ '\\u00e9\\x41\\101' }} {{ 'a\\qb' }}", "line1\n\nline2\n", "{{ 'a' -}}   b   {{- 'c' }}\n\n", "{{- ' x ' -}}", "{%+ if true +%}\n x{% endif %}",
    "{{ [1, 'a', none, {'k': \"it's\"}, (1, 2), 1.0, true, 'q\"\\'\\n'] }}", "{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 3) }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}['a'] }}{{ {'a': 1}.a }}", "{{ x.y }}", "{{ x['y'] }}", "{{ x + 1 }}", "{{ 'a' + 1 }}", "{{ [].append(1) }}", "{{ raise_exception('no ' ~ 'way') }}", "{{ nothing() }}", "{{ 'a' | nofilter }}", "{{ 1 is notest }}", "{% if %}", "{% for x in %}", "{{ 1 + }}", "{{ (1 }}", "{% endif %}", "{% if 1 %}", "{{ 'abc }}", "{% unknown %}", "{{ 1 / 0 }}", "{{ a.b.c }}", "{{ {'a': none}.a.b }}",
    "{{ [[1, 2], [3]] | map('first') | list }} {{ [{'f': {'n': 'x'}}] | map(attribute='f.n') | list }} {{ ['x'] | join }} {{ 'a,b' | replace(',', ';') }}", "{{ ('a' 'b') ~ 'c' }} {{ 'a' if x else 'b' }} {{ (not x) and 1 }} {{ 0 or 'z' }} {{ 1 and 2 }}", "{{ 'ab'|upper ~ 'cd'|upper }} {{ -1|abs }} {{ 'a' is string and 1 is number }} {{ 'a' == 'a' and 2 > 1 or false }} {{ 1 in [1] and true }}", "{{ '%' }} {{ '{%' }} {{ 5 % 3 }}", "{{ true }} {{ True }} {{ None }} {{ none }} {{ false == False }}", "{{ dict(a=1, b='x') }} {{ {'a': 1} | items | list }} {{ {1: 'x', 'y': 2} }} {{ {1: 'x'}[1] }}", "{{ 'x' * 0 }}|{{ ''.split(',') }}|{{ ''.split() }}|{{ 'a\\nb\\r\\nc'.splitlines() }}|{{ 'abc'.partition('b') }}|{{ 'prefix-x'.removeprefix('prefix-') }}",
]


def dicts(conversation, forms):
    order = {"system": 0, "user": 1, "assistant": 2}
    messages = []
    for role, parts in conversation:
        if forms[order[role]] == "l":
            content = [{"type": "image"} if "image" in part else {"type": "text", "text": part["text"]} for part in parts]
        else:
            content = "".join((TOKENS["image_token"] + ("\n" if i + 1 < len(parts) else "")) if "image" in part else part["text"] for i, part in enumerate(parts))
        messages.append({"role": role, "content": content})
    return messages


def attempt(render):
    try:
        return {"text": render()}
    except Exception as error:
        return {"error": str(error)}


def write(out):
    folder = out / "chat"
    folder.mkdir(parents=True, exist_ok=True)
    cases = []
    for name, (source, forms) in TEMPLATES.items():
        (folder / (name + ".jinja")).write_text(source, encoding="utf-8")
        for index, conversation in enumerate(CONVERSATIONS):
            for generation in (False, True):
                def render(conversation=conversation, generation=generation):
                    messages = dicts(conversation, forms)
                    return render_jinja_template([messages], chat_template=source, add_generation_prompt=generation, **TOKENS)[0][0]
                cases.append({"template": name, "conversation": index, "generation": generation, **attempt(render)})
    conversations = [[{"role": role, "parts": parts} for role, parts in conversation] for conversation in CONVERSATIONS]
    (folder / "cases.json").write_text(json.dumps({"conversations": conversations, "cases": cases}, indent=0) + "\n")
    expressions = [{"source": source, **attempt(lambda source=source: _compile_jinja_template(source).render())} for source in EXPRESSIONS]
    (folder / "expressions.json").write_text(json.dumps(expressions, indent=0) + "\n")
