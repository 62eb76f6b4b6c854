// formats/chat_template/operations.h — Python's operators on values
#pragma once

#include "formats/chat_template/syntax.h"
#include "formats/chat_template/value.h"

namespace snug::jinja {

// +, −, *, /, //, %, ** (`op` is kAdd … kPower). Throws Failure for types that have no such operation and for integers beyond 64 bits.
Value arithmetic(Account& account, ExprKind op, const Value& a, const Value& b);
Value negate(const Value& value);
Value unary_plus(const Value& value);

// One of a chain of comparisons.
bool compare(Account& account, CompareKind op, const Value& a, const Value& b);

// object[begin:end:step]; null bounds are left out.
Value slice(Account& account, const Value& object, const Value* begin, const Value* end, const Value* step);
// object[key] of texts, lists, tuples, ranges and dicts; false where there is none.
bool find_item(Account& account, const Value& object, const Value& key, Value& found);

// "…" % values.
Value format_percent(Account& account, std::string_view format, const Value& values);

// HTML's five characters escaped, unless the value is marked safe. The result is marked safe.
Value escape_html(Account& account, const Value& value);

}  // namespace snug::jinja
