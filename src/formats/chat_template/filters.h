// formats/chat_template/filters.h — jinja's filters and tests by their names, and the methods of texts
#pragma once

#include <string_view>

#include "formats/chat_template/interpreter.h"

namespace snug::jinja {

// Null for a name that Snug does not have.
Function find_filter(std::string_view name);
Function find_test(std::string_view name);

// Methods of str. Null for a name that it does not have or that Snug does not.
using TextMethod = Value (*)(Interpreter& run, const Value& text, const Arguments& arguments);
TextMethod find_text_method(std::string_view name);
// A method or attribute that Python's type has and Snug does not: refused by name and not undefined.
bool is_other_attribute(Kind kind, std::string_view name);

}  // namespace snug::jinja
