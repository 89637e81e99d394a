// The tojson filter, which transformers defines as Python's json.dumps(ensure_ascii=False).
#include <fmt/format.h>

#include <algorithm>

#include "lib/text/jinja/value.h"

namespace vlmtune::jinja {
namespace {

constexpr int kMaxDepth = 100;

struct JsonStyle {
  int indent;
  bool sort_keys;
  std::string item_separator, key_separator;
};

void append_string(Text& out, const Text& text) {
  out.append("\"", kTemplateSource);
  for (size_t at = 0; at < text.size(); ++at) {
    char c = text.bytes()[at];
    int source = text.source_at(at);
    if (c == '"')
      out.append("\\\"", source);
    else if (c == '\\')
      out.append("\\\\", source);
    else if (c == '\n')
      out.append("\\n", source);
    else if (c == '\r')
      out.append("\\r", source);
    else if (c == '\t')
      out.append("\\t", source);
    else if (c == '\b')
      out.append("\\b", source);
    else if (c == '\f')
      out.append("\\f", source);
    else if (static_cast<unsigned char>(c) < 0x20)
      out.append(fmt::format("\\u{:04x}", c), source);
    else
      out.append(std::string_view(&c, 1), source);
  }
  out.append("\"", kTemplateSource);
}

void append_json(Text& out, const Value& value, const JsonStyle& style, int depth) {
  using Kind = Value::Kind;
  if (depth > kMaxDepth) throw Error("a value is nested too deeply for tojson");
  auto put = [&](const std::string& bytes) { out.append(bytes, kTemplateSource); };
  auto new_line = [&](int level) {
    if (style.indent >= 0) put("\n" + std::string(static_cast<size_t>(style.indent * level), ' '));
  };
  switch (value.kind()) {
    case Kind::kNone:
      put("null");
      return;
    case Kind::kBool:
      put(value.truth() ? "true" : "false");
      return;
    case Kind::kInteger:
      put(std::to_string(value.as_integer()));
      return;
    case Kind::kFloat:
      put(format_real(value.as_number()));
      return;
    case Kind::kText:
      append_string(out, value.as_text());
      return;
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = value.as_list();
      put("[");
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) put(style.item_separator);
        new_line(depth + 1);
        append_json(out, items[i], style, depth + 1);
      }
      if (!items.empty()) new_line(depth);
      put("]");
      return;
    }
    case Kind::kDict: {
      auto items = value.as_dict();
      if (style.sort_keys)
        std::stable_sort(items.begin(), items.end(),
                         [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
      put("{");
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) put(style.item_separator);
        new_line(depth + 1);
        append_string(out, items[i].first.to_text());
        put(style.key_separator);
        append_json(out, items[i].second, style, depth + 1);
      }
      if (!items.empty()) new_line(depth);
      put("}");
      return;
    }
    default:
      throw Error(fmt::format("tojson: {} is no JSON value", value.type_name()));
  }
}

}  // namespace

Text to_json(const Value& value, int indent, bool sort_keys, const std::string& item_separator,
             const std::string& key_separator) {
  Text out;
  append_json(out, value, {std::min(indent, 64), sort_keys, item_separator, key_separator}, 0);
  return out;
}

}  // namespace vlmtune::jinja
