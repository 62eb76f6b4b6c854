// Jinja's tests: what stands behind `is`.
#include <algorithm>
#include <array>
#include <utility>

#include "formats/chat_template/filters.h"
#include "formats/chat_template/operations.h"
#include "formats/chat_template/python_text.h"

namespace snug::jinja {
namespace {

using Check = bool (*)(const Value& value);

template <Check check>
Value test(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters none("test", arguments, {});
  return Value::boolean(check(value));
}

template <CompareKind op>
Value comparison(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("test", arguments, {"other"});
  return Value::boolean(compare(run.account(), op, value, given.at(0)));
}

template <int remainder>
Value parity(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("test", arguments, {});
  const Value rest = arithmetic(run.account(), ExprKind::kModulo, value, Value::integer(2));
  return Value::boolean(equal(run.account(), rest, Value::integer(remainder)));
}

Value divisible(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("divisibleby", arguments, {"num"});
  return Value::boolean(equal(run.account(), arithmetic(run.account(), ExprKind::kModulo, value, given.at(0)),
                              Value::integer(0)));
}

template <TextClass what>
Value text_class(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("test", arguments, {});
  return Value::boolean(belongs(as_text(run.account(), value).as_text(), what));
}

Value same_as(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("sameas", arguments, {"other"});
  const Value& other = given.at(0);
  if (value.kind() != other.kind()) return Value::boolean(false);
  if (value.is_text() || value.is_number() || value.is(Kind::kNone))
    return Value::boolean(equal(run.account(), value, other));
  return Value::boolean(value.object() == other.object());
}

Value is_filter(Interpreter&, const Value& value, const Arguments&) {
  return Value::boolean(value.is_text() && find_filter(value.as_text()) != nullptr);
}
Value is_test(Interpreter&, const Value& value, const Arguments&) {
  return Value::boolean(value.is_text() && find_test(value.as_text()) != nullptr);
}

template <Kind kind>
bool is_kind(const Value& value) {
  return value.is(kind);
}
bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.as_integer() != 0; }
bool is_false(const Value& value) { return value.is(Kind::kBool) && value.as_integer() == 0; }
bool is_number(const Value& value) { return value.is_number(); }
bool is_sequence(const Value& value) {
  return value.is_text() || value.is_sequence() || value.is(Kind::kDict) || value.is(Kind::kRange) ||
         value.is_undefined();
}
bool is_callable(const Value& value) {
  return value.is(Kind::kFunction) || value.is(Kind::kMethod) || value.is(Kind::kMacro) ||
         value.is(Kind::kLoop) || value.is_undefined();
}
bool is_safe(const Value& value) { return value.is_safe(); }

constexpr std::array<std::pair<std::string_view, Function>, 39> kTests = {{
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible},
    {"defined", test<is_defined>},
    {"undefined", test<is_kind<Kind::kUndefined>>},
    {"filter", is_filter},
    {"test", is_test},
    {"none", test<is_kind<Kind::kNone>>},
    {"boolean", test<is_kind<Kind::kBool>>},
    {"false", test<is_false>},
    {"true", test<is_true>},
    {"integer", test<is_kind<Kind::kInteger>>},
    {"float", test<is_kind<Kind::kReal>>},
    {"lower", text_class<TextClass::kLower>},
    {"upper", text_class<TextClass::kUpper>},
    {"string", test<is_kind<Kind::kText>>},
    {"mapping", test<is_kind<Kind::kDict>>},
    {"number", test<is_number>},
    {"sequence", test<is_sequence>},
    {"iterable", test<can_iterate>},
    {"callable", test<is_callable>},
    {"sameas", same_as},
    {"escaped", test<is_safe>},
    {"in", comparison<CompareKind::kIn>},
    {"eq", comparison<CompareKind::kEqual>},
    {"equalto", comparison<CompareKind::kEqual>},
    {"==", comparison<CompareKind::kEqual>},
    {"ne", comparison<CompareKind::kNotEqual>},
    {"!=", comparison<CompareKind::kNotEqual>},
    {"gt", comparison<CompareKind::kGreater>},
    {"greaterthan", comparison<CompareKind::kGreater>},
    {">", comparison<CompareKind::kGreater>},
    {"ge", comparison<CompareKind::kGreaterEqual>},
    {">=", comparison<CompareKind::kGreaterEqual>},
    {"lt", comparison<CompareKind::kLess>},
    {"lessthan", comparison<CompareKind::kLess>},
    {"<", comparison<CompareKind::kLess>},
    {"le", comparison<CompareKind::kLessEqual>},
    {"<=", comparison<CompareKind::kLessEqual>},
}};

}  // namespace

Function find_test(std::string_view name) {
  for (const auto& [known, function] : kTests)
    if (known == name) return function;
  return nullptr;
}

}  // namespace snug::jinja
