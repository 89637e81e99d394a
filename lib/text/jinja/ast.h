// The parsed template.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/text/jinja/value.h"

namespace vlmtune::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    kConstant,   // value
    kName,       // name
    kList,       // operands
    kTuple,      // operands
    kDict,       // operands: key, value, key, value...
    kAttribute,  // operands[0] . name
    kSubscript,  // operands[0] [ operands[1] ]
    kSlice,      // operands[0] [ a : b : c ], each may be null
    kCall,       // operands[0] ( the rest, named )
    kFilter,     // operands[0] | name ( the rest, named ); operands[0] is null inside a filter block
    kTest,       // operands[0] is name ( the rest )
    kUnary,      // name: not - +
    kBinary,     // name: + - * / // % ** ~ and or in "not in"
    kCompare,    // operands[0] op operands[1] op ...; names[i] between i and i + 1
    kCondition,  // operands[0] if operands[1] else operands[2] (may be null)
  };
  Kind kind;
  int line;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> names;
};

struct Statement;
using Block = std::vector<Statement>;

/// What an assignment or a loop writes to: a name, an attribute of a namespace, or several names.
struct Target {
  std::vector<std::string> names;
  std::string attribute;  // of names[0]
};

struct Statement {
  enum class Kind { kData, kOutput, kIf, kFor, kSet, kSetBlock, kMacro, kFilterBlock, kGeneration, kBreak, kContinue };
  Kind kind;
  int line;
  std::string text;                                               // data; name of a macro
  ExpressionPtr value;                                            // output, condition, iterable, assigned value, filter
  ExpressionPtr filter;                                           // condition of a loop
  Target target;                                                  // loop, set
  Block body, otherwise;                                          // otherwise: else of if (elif is nested) and of for
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // of a macro; null: no default
};

}  // namespace vlmtune::jinja
