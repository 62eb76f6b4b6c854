// formats/chat_template/syntax.h — a template as a tree: plain data that the interpreter walks
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace snug::jinja {

class Interpreter;
class Value;
struct Arguments;

// A filter or test by its name (filters.h).
using Function = Value (*)(Interpreter& run, const Value& value, const Arguments& arguments);

// A name as a number, the place in Template::names.
using NameId = int32_t;

enum class ExprKind : uint8_t {
  // Leaves
  kText,  // text
  kInteger,
  kReal,
  kBool,  // integer
  kNone,
  kName,
  // Children in the order written
  kTuple,
  kList,
  kDict,  // key, value, key, value, …
  kNot,
  kNegate,
  kPlus,
  kAnd,
  kOr,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat,
  kCompare,        // compares[i] stands before children[i + 1]
  kConditional,    // value, condition, other value (may be null)
  kAttribute,      // object; text
  kItem,           // object, key
  kSlice,          // object, begin, end, step (each may be null)
  kCall,           // what is called, arguments
  kFilter,         // value (null in {% filter %} and {% set %}), arguments; text, function
  kTest,           // value, arguments; text, function
  kNamespaceItem,  // only assigned to: name, text
};

enum class CompareKind : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

// One argument of a call, filter or test.
struct Argument {
  enum class Kind : uint8_t { kPositional, kKeyword, kList, kDict };
  Kind kind = Kind::kPositional;
  std::string keyword;
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::kNone;
  int line = 0;
  int depth = 1;  // of the tree below it
  NameId name = -1;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  Function function = nullptr;
  std::vector<ExprPtr> children;
  std::vector<Argument> arguments;
  std::vector<CompareKind> compares;
};

enum class StatementKind : uint8_t {
  kText,         // text
  kPrint,        // expression
  kIf,           // expressions[i] guards bodies[i]; one more body is the else
  kFor,          // target, iterated, condition (may be null); body, else (may be missing); recursive
  kSet,          // target, value
  kSetBlock,     // target, filter (may be null); body
  kWith,         // target, value, target, value, …; body
  kMacro,        // name; parameters; defaults in expressions (of the last ones); body; uses_…
  kCall,         // the same for the caller's body; the last expression is the call
  kFilterBlock,  // filter; body
  kGeneration,   // body
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  NameId name = -1;
  bool recursive = false;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  std::string text;
  std::vector<ExprPtr> expressions;
  std::vector<NameId> parameters;
  std::vector<Body> bodies;
};

struct Template {
  Body body;
  std::vector<std::string> names;
  bool has_generation = false;
};

}  // namespace snug::jinja
