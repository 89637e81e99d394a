#include "lib/text/jinja/interpreter.h"

#include <fmt/format.h>

#include <optional>

#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/operators.h"

namespace vlmtune::jinja {
namespace {

constexpr int kMaxDepth = 1000;           // of expressions and statements inside each other
constexpr int kMaxMacroDepth = 20;        // macros that call macros
constexpr int64_t kMaxSteps = 3'000'000;  // statements and expressions; loops and long texts count more
constexpr int64_t kStepsPerLoop = 10;
constexpr size_t kBytesPerStep = 256;

enum class Flow { kNext, kBreak, kContinue };

/// Names of a loop, a macro or the template, and the scope around them.
struct Scope {
  Scope* outer = nullptr;
  std::unordered_map<std::string, Value> names;

  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->outer) {
      if (auto found = scope->names.find(name); found != scope->names.end()) return &found->second;
    }
    return nullptr;
  }
};

class Interpreter {
 public:
  explicit Interpreter(const std::unordered_map<std::string, Value>& variables) {
    context_.names = variables, top_.outer = &context_;
  }

  Text render(const Block& block) {
    Text out;
    run_block(block, top_, out);
    return out;
  }

 private:
  struct DepthCounter {
    explicit DepthCounter(Interpreter& self, int line) : self(self) {
      if (++self.depth_ > kMaxDepth) --self.depth_, throw Error("nested too deeply", line);
      if (++self.steps_ > kMaxSteps) --self.depth_, throw Error("the template does not come to an end", line);
    }
    ~DepthCounter() { --self.depth_; }
    Interpreter& self;
  };

  Flow run_block(const Block& block, Scope& scope, Text& out) {
    for (const auto& statement : block) {
      DepthCounter counter(*this, statement.line);
      Flow flow;
      try {
        flow = run_statement(statement, scope, out);
      } catch (Error& error) {
        if (error.line == 0) error.line = statement.line;
        throw;
      }
      if (out.size() > kMaxTextBytes) throw Error("the rendered text is too long", statement.line);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow run_statement(const Statement& statement, Scope& scope, Text& out) {
    using Kind = Statement::Kind;
    switch (statement.kind) {
      case Kind::kData:
        out.append(statement.text, kTemplateSource);
        return Flow::kNext;
      case Kind::kOutput:
        out.append(evaluate(*statement.value, scope).to_text());
        return Flow::kNext;
      case Kind::kIf:
        return run_block(evaluate(*statement.value, scope).truth() ? statement.body : statement.otherwise, scope, out);
      case Kind::kFor:
        return run_for(statement, scope, out);
      case Kind::kSet:
        assign(statement.target, evaluate(*statement.value, scope), scope);
        return Flow::kNext;
      case Kind::kGeneration:
        return run_block(statement.body, scope, out);
      case Kind::kBreak:
        return Flow::kBreak;
      case Kind::kContinue:
        return Flow::kContinue;
      case Kind::kMacro:
        define_macro(statement, scope);
        return Flow::kNext;
      case Kind::kSetBlock:
      case Kind::kFilterBlock: {
        Text written;
        Scope inner{&scope, {}};
        run_block(statement.body, inner, written);
        auto value = Value::text(std::move(written));
        if (statement.value) value = filter_block(*statement.value, value, scope);
        if (statement.kind == Kind::kSetBlock)
          assign(statement.target, value, scope);
        else
          out.append(value.to_text());
        return Flow::kNext;
      }
    }
    return Flow::kNext;
  }

  Flow run_for(const Statement& statement, Scope& scope, Text& out) {
    auto items = evaluate(*statement.value, scope).iterate();
    if (statement.filter) {
      List kept;
      for (auto& item : items) {
        steps_ += kStepsPerLoop;
        Scope inner{&scope, {}};
        assign(statement.target, item, inner);
        if (evaluate(*statement.filter, inner).truth()) kept.push_back(item);
      }
      items = std::move(kept);
    }
    if (items.empty()) return run_block(statement.otherwise, scope, out);
    auto last_changed = std::make_shared<List>();
    int64_t depth = 1;
    if (const auto* outer = scope.find("loop"); outer && outer->is_dict()) {
      if (const auto* outer_depth = outer->find("depth")) depth = outer_depth->as_integer() + 1;
    }
    for (size_t i = 0; i < items.size(); ++i) {
      steps_ += kStepsPerLoop;
      DepthCounter counter(*this, statement.line);
      Scope inner{&scope, {}};
      assign(statement.target, items[i], inner);
      inner.names["loop"] = loop_value(items, i, depth, last_changed);
      if (run_block(statement.body, inner, out) == Flow::kBreak) break;
    }
    return Flow::kNext;
  }

  static Value loop_value(const List& items, size_t i, int64_t depth, const std::shared_ptr<List>& last_changed) {
    auto n = static_cast<int64_t>(items.size()), index = static_cast<int64_t>(i);
    Dict loop;
    auto put = [&](const char* name, Value value) {
      loop.emplace_back(Value::text(std::string(name)), std::move(value));
    };
    put("index", Value::integer(index + 1)), put("index0", Value::integer(index));
    put("revindex", Value::integer(n - index)), put("revindex0", Value::integer(n - index - 1));
    put("first", Value::boolean(i == 0)), put("last", Value::boolean(index + 1 == n));
    put("length", Value::integer(n)), put("depth", Value::integer(depth)), put("depth0", Value::integer(depth - 1));
    put("previtem", i > 0 ? items[i - 1] : Value::undefined("there is no previous item"));
    put("nextitem", index + 1 < n ? items[i + 1] : Value::undefined("there is no next item"));
    put("cycle", Value::callable([i](const Arguments& arguments) {
          const auto& values = arguments.positional;
          if (values.empty()) throw Error("loop.cycle() needs values");
          return values[i % values.size()];
        }));
    put("changed", Value::callable([last_changed](const Arguments& arguments) {
          bool same = !last_changed->empty() && equal(Value::list(*last_changed), Value::list(arguments.positional));
          *last_changed = arguments.positional;
          return Value::boolean(!same);
        }));
    return Value::dict(std::move(loop));
  }

  static void assign(const Target& target, const Value& value, Scope& scope) {
    if (!target.attribute.empty()) {
      const auto* object = scope.find(target.names[0]);
      if (!object) throw Error(fmt::format("'{}' is undefined", target.names[0]));
      object->set(target.attribute, value);
      return;
    }
    if (target.names.size() == 1) {
      scope.names[target.names[0]] = value;
      return;
    }
    auto items = value.iterate();
    if (items.size() != target.names.size())
      throw Error(fmt::format("{} values for {} names", items.size(), target.names.size()));
    for (size_t i = 0; i < items.size(); ++i) scope.names[target.names[i]] = items[i];
  }

  void define_macro(const Statement& statement, Scope& scope) {
    // A macro sees the template's own names, not those of the loop it is called from.
    auto call = [this, &statement](const Arguments& arguments) {
      if (macro_depth_ >= kMaxMacroDepth)
        throw Error(fmt::format("macros call each other more than {} deep", kMaxMacroDepth), statement.line);
      struct Guard {
        int& depth;
        ~Guard() { --depth; }
      } guard{++macro_depth_};
      Scope inner{&top_, {}};
      if (arguments.positional.size() > statement.parameters.size())
        throw Error(fmt::format("macro '{}' takes {} arguments", statement.text, statement.parameters.size()));
      for (const auto& [name, value] : arguments.named) {
        bool known = false;
        for (const auto& parameter : statement.parameters) known = known || parameter.first == name;
        if (!known) throw Error(fmt::format("macro '{}' takes no argument '{}'", statement.text, name));
      }
      for (size_t i = 0; i < statement.parameters.size(); ++i) {
        const auto& [name, fallback] = statement.parameters[i];
        const auto* given = arguments.find(i, name);
        inner.names[name] = given      ? *given
                            : fallback ? evaluate(*fallback, inner)
                                       : Value::undefined(fmt::format("parameter '{}' was not provided", name));
      }
      Text out;
      run_block(statement.body, inner, out);
      return Value::text(std::move(out));
    };
    scope.names[statement.text] = Value::callable(call);
  }

  Value filter_block(const Expression& filter, const Value& written, Scope& scope) {
    auto input = filter.operands[0] ? filter_block(*filter.operands[0], written, scope) : written;
    return apply_filter(filter.name, input, arguments_of(filter, scope));
  }

  Arguments arguments_of(const Expression& call, Scope& scope) {
    Arguments arguments;
    for (size_t i = 1; i < call.operands.size(); ++i)
      arguments.positional.push_back(evaluate(*call.operands[i], scope));
    for (const auto& [name, value] : call.named) arguments.named.emplace_back(name, evaluate(*value, scope));
    return arguments;
  }

  Value evaluate(const Expression& expression, Scope& scope) {
    DepthCounter counter(*this, expression.line);
    try {
      auto value = evaluate_kind(expression, scope);
      if (value.is_text()) steps_ += static_cast<int64_t>(value.as_text().size() / kBytesPerStep);
      if (value.is_sequence()) steps_ += static_cast<int64_t>(value.as_list().size() / kBytesPerStep);
      return value;
    } catch (Error& error) {
      if (error.line == 0) error.line = expression.line;
      throw;
    }
  }

  Value evaluate_kind(const Expression& expression, Scope& scope) {
    using Kind = Expression::Kind;
    auto operand = [&](size_t i) { return evaluate(*expression.operands[i], scope); };
    switch (expression.kind) {
      case Kind::kConstant:
        return expression.value;
      case Kind::kName:
        return look_up(expression.name, scope);
      case Kind::kList:
      case Kind::kTuple: {
        List items;
        for (const auto& item : expression.operands) items.push_back(evaluate(*item, scope));
        return expression.kind == Kind::kList ? Value::list(std::move(items)) : Value::tuple(std::move(items));
      }
      case Kind::kDict:
        return make_dict(expression, scope);
      case Kind::kAttribute:
        return get_attribute(operand(0), expression.name);
      case Kind::kSubscript:
        return get_item(operand(0), operand(1));
      case Kind::kSlice:
        return evaluate_slice(expression, scope);
      case Kind::kCall: {
        auto callee = operand(0);
        return callee.as_callable()(arguments_of(expression, scope));
      }
      case Kind::kFilter: {
        if (expression.operands.empty() || !expression.operands[0]) throw Error("a filter without a value");
        auto value = operand(0);
        return apply_filter(expression.name, value, arguments_of(expression, scope));
      }
      case Kind::kTest: {
        auto value = operand(0);
        return Value::boolean(apply_test(expression.name, value, arguments_of(expression, scope)));
      }
      case Kind::kUnary:
        return unary(expression.name, operand(0));
      case Kind::kBinary:
        return evaluate_binary(expression, scope);
      case Kind::kCompare:
        return evaluate_compare(expression, scope);
      case Kind::kCondition:
        if (operand(1).truth()) return operand(0);
        return expression.operands[2] ? operand(2) : Value::undefined("the inline if has no else");
    }
    return Value();
  }

  static Value look_up(const std::string& name, const Scope& scope) {
    if (const auto* value = scope.find(name)) return *value;
    auto function = find_function(name);
    return function.is_undefined() ? Value::undefined(fmt::format("'{}' is undefined", name)) : function;
  }

  Value make_dict(const Expression& expression, Scope& scope) {
    Dict items;
    for (size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
      auto key = evaluate(*expression.operands[i], scope);
      auto value = evaluate(*expression.operands[i + 1], scope);
      bool replaced = false;
      for (auto& item : items) {
        if (equal(item.first, key)) item.second = value, replaced = true;
      }
      if (!replaced) items.emplace_back(std::move(key), std::move(value));
    }
    return Value::dict(std::move(items));
  }

  Value evaluate_slice(const Expression& expression, Scope& scope) {
    auto bound = [&](size_t i) -> std::optional<int64_t> {
      if (!expression.operands[i]) return std::nullopt;
      auto value = evaluate(*expression.operands[i], scope);
      return value.is_none() ? std::nullopt : std::optional<int64_t>(value.as_integer());
    };
    auto value = evaluate(*expression.operands[0], scope);
    auto begin = bound(1), end = bound(2), step = bound(3);
    return slice(value, begin, end, step.value_or(1));
  }

  Value evaluate_binary(const Expression& expression, Scope& scope) {
    auto left = evaluate(*expression.operands[0], scope);
    if (expression.name == "and" && !left.truth()) return left;
    if (expression.name == "or" && left.truth()) return left;
    auto right = evaluate(*expression.operands[1], scope);
    return expression.name == "and" || expression.name == "or" ? right : binary(expression.name, left, right);
  }

  Value evaluate_compare(const Expression& expression, Scope& scope) {
    auto left = evaluate(*expression.operands[0], scope);
    for (size_t i = 0; i < expression.names.size(); ++i) {
      auto right = evaluate(*expression.operands[i + 1], scope);
      if (!holds(expression.names[i], left, right)) return Value::boolean(false);
      left = std::move(right);
    }
    return Value::boolean(true);
  }

  Scope context_, top_;
  int depth_ = 0, macro_depth_ = 0;
  int64_t steps_ = 0;
};

}  // namespace

Text run(const Block& block, const std::unordered_map<std::string, Value>& variables) {
  return Interpreter(variables).render(block);
}

}  // namespace vlmtune::jinja
