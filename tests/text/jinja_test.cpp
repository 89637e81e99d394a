// The template language against jinja2 as transformers sets it up, the sources of bytes, and hostile templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/errors.h"
#include "lib/text/jinja/template.h"

namespace vlmtune::jinja {
namespace {

using Json = nlohmann::json;

Json expressions() {
  std::ifstream file(std::string(VLMTUNE_TEST_DATA) + "/golden/text/chat/expressions.json");
  return Json::parse(file);
}

TEST(Jinja, ExpressionsEqualTheReference) {
  for (const auto& one : expressions()) {
    auto source = one.at("source").get<std::string>();
    if (one.contains("error")) {
      EXPECT_THROW(Template(source, "t").render({}), UserError) << source;
      continue;
    }
    try {
      EXPECT_EQ(Template(source, "t").render({}).bytes(), one.at("text").get<std::string>()) << source;
    } catch (const UserError& error) {
      ADD_FAILURE() << source << "\n" << error.what();
    }
  }
}

/// "text:source" of each run.
std::vector<std::string> runs(const std::string& source, const std::string& input) {
  auto text = Template(source, "t").render({{"x", Value::text(Text(input, 7))}});
  std::vector<std::string> out;
  size_t begin = 0;
  for (const auto& run : text.runs()) {
    out.push_back(text.bytes().substr(begin, run.end - begin) + ":" + std::to_string(run.source));
    begin = run.end;
  }
  return out;
}

TEST(Jinja, StringOperationsKeepTheSource) {
  using testing::ElementsAre;
  EXPECT_THAT(runs("<{{ x }}>", "ab"), ElementsAre("<:-1", "ab:7", ">:-1"));
  EXPECT_THAT(runs("{{ 'p' + x | trim + 's' }}", " ab "), ElementsAre("p:-1", "ab:7", "s:-1"));
  EXPECT_THAT(runs("{{ (x ~ '!').upper() }}", "ab"), ElementsAre("AB:7", "!:-1"));
  EXPECT_THAT(runs("{{ x.replace('-', '+') }}", "a-b"), ElementsAre("a:7", "+:-1", "b:7"));
  EXPECT_THAT(runs("{{ x.split(',') | join('; ') }}", "a,b"), ElementsAre("a:7", "; :-1", "b:7"));
  EXPECT_THAT(runs("{{ ('[' + x + ']')[0:2] }}", "ab"), ElementsAre("[:-1", "a:7"));
  EXPECT_THAT(runs("{{ x[::-1] }}|{{ x[0] }}", "ab"), ElementsAre("ba:7", "|:-1", "a:7"));
  EXPECT_THAT(runs("{{ {'k': x} | tojson }}", "a\"b"), ElementsAre("{\"k\": \":-1", "a\\\"b:7", "\"}:-1"));
  EXPECT_THAT(runs("{% set y %}({{ x }}){% endset %}{{ y }}", "ab"), ElementsAre("(:-1", "ab:7", "):-1"));
  EXPECT_THAT(runs("{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(x) }}", "ab"), ElementsAre("<:-1", "ab:7", ">:-1"));
}

TEST(Jinja, ErrorsNameOriginAndLine) {
  auto message = [](const std::string& source) -> std::string {
    try {
      Template(source, "dir/chat.jinja").render({});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("a\nb {{ x.y }}"), "dir/chat.jinja: chat template, line 2: 'x' is undefined");
  EXPECT_EQ(message("\n\n{{ raise_exception('roles must alternate') }}"),
            "dir/chat.jinja: chat template, line 3: roles must alternate");
  EXPECT_THAT(message("{% if a %}"), testing::HasSubstr("endif"));
  EXPECT_THAT(message("{% include 'x' %}"), testing::HasSubstr("include"));
}

TEST(Jinja, HostileTemplatesAreRefused) {
  auto repeat = [](const std::string& part, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += part;
    return out;
  };
  const std::vector<std::string> hostile = {
      "{{ " + repeat("(", 100000) + " }}",
      "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
      "{{ " + repeat("-", 100000) + "1 }}",
      "{{ " + repeat("not ", 100000) + "1 }}",
      "{{ 1" + repeat(" + 1", 100000) + " }}",
      repeat("{% if 1 %}", 50000) + repeat("{% endif %}", 50000),
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 100000000000 }}",
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.self = ns %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{{ range(100000000) }}",
      "{{ 9 ** 9 ** 9 }}",
  };
  for (const auto& source : hostile) EXPECT_THROW(Template(source, "t").render({}), UserError) << source.substr(0, 60);
}

}  // namespace
}  // namespace vlmtune::jinja
