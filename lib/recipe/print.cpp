// The recipe as JSON text, and the reference of all keys.
#include "lib/recipe/availability.h"
#include "lib/recipe/codec.h"
#include "lib/recipe/parser.h"

namespace vlmtune {
namespace {

/// One Markdown row for each leaf. `defaults` holds the member in the default recipe of each training subcommand.
struct ReferenceWriter {
  std::string& out;
  std::string prefix, pointer;
  const Object* pretrain;
  const Object* lora;

  template <typename T>
  void operator()(const Field& field, T& member) {
    if constexpr (Section<T>) {
      descend(field, member);
    } else if constexpr (std::is_same_v<T, std::optional<LoraRecipe>>) {
      LoraRecipe inner;
      descend(field, inner);
    } else {
      row(field, expected_text<T>(field));
    }
  }

 private:
  template <typename T>
  static std::string expected_text(const Field& field) {
    if constexpr (std::is_same_v<T, std::vector<DataSource>>)
      return "a list, each a file name or {\"path\", \"weight\"}";
    else if constexpr (std::is_same_v<T, std::optional<std::vector<AccumulationStage>>>)
      return "a list, each {\"until_step\", \"steps\"}, or null";
    else
      return Codec<T>::expected(field);
  }
  template <typename T>
  void descend(const Field& field, T& inner) {
    const auto key = std::string(field.key);
    if (prefix.empty()) {
      out += fmt::format("\n### {}\n{}\n\n| key | value | default | meaning |\n|---|---|---|---|\n", key, field.doc);
    }
    ReferenceWriter writer{out, prefix + key + ".", pointer + "/" + key, inner_object(pretrain, field.key),
                           inner_object(lora, field.key)};
    visit_fields(writer, inner);
  }
  static const Object* inner_object(const Object* object, std::string_view key) {
    const Value* value = object != nullptr ? object->find(key) : nullptr;
    return value != nullptr ? value->object() : nullptr;
  }
  static std::string default_text(const Object* object, std::string_view key) {
    const Value* value = object != nullptr ? object->find(key) : nullptr;
    return value != nullptr ? inline_text(*value) : "";
  }
  static std::string escaped(std::string_view text) {
    std::string cell;
    for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
    return cell;
  }
  void row(const Field& field, const std::string& expected) {
    const auto first = default_text(pretrain, field.key), second = default_text(lora, field.key);
    std::string usual = fmt::format("`{}`", second);
    if (!first.empty() && first != second) usual = fmt::format("pretrain `{}`, lora-finetune `{}`", first, second);
    std::string doc(field.doc);
    for (const auto& limit : availability_table())
      if (limit.pointer == pointer + "/" + std::string(field.key))
        doc += fmt::format(" (today: {})", alternatives(limit.works));
    out +=
        fmt::format("| `{}{}` | {} | {} | {} |\n", prefix, field.key, escaped(expected), escaped(usual), escaped(doc));
  }
};

/// Members of `to` that `from` has otherwise.
Object differences(const Object& from, const Object& to) {
  Object result;
  for (const auto& [key, value] : to) {
    const Value* before = from.find(key);
    if (before != nullptr && *before == value) continue;
    if (before != nullptr && before->object() != nullptr && value.object() != nullptr)
      result[key] = differences(*before->object(), *value.object());
    else
      result[key] = value;
  }
  return result;
}

}  // namespace

std::string print_recipe(const Recipe& recipe) { return pretty_text(write_fields(recipe)) + "\n"; }

std::string recipe_patch(const Recipe& from, const Recipe& to) {
  return inline_text(differences(write_fields(from), write_fields(to)));
}

std::string recipe_reference() {
  const Object pretrain = write_fields(default_recipe(Command::kPretrain));
  const Object lora = write_fields(default_recipe(Command::kLoraFinetune));
  Recipe recipe;
  std::string out;
  ReferenceWriter writer{out, "", "", &pretrain, &lora};
  visit_fields(writer, recipe);
  return out;
}

}  // namespace vlmtune
