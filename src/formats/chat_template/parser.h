// formats/chat_template/parser.h — the grammar of Jinja 3.1, as its own parser reads it, with {% generation %}, break and continue
//
// Refused by name: include, import, from, extends, block, autoescape, trans, do, debug; filters and tests that filters.h does not have.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "formats/chat_template/syntax.h"

namespace snug::jinja {

// What a template may be at most.
inline constexpr size_t kMaxTemplateBytes = 256 * 1024;
inline constexpr size_t kMaxTokens = 64 * 1024;
inline constexpr int kMaxNesting = 100;  // brackets and statements inside one another
inline constexpr int kMaxExprDepth =
    400;  // of an expression's tree: terms of a sum, filters behind one another

// Throws UserError(kBadFile) that names `file` and the line.
Template parse_template(std::string_view source, const std::string& file);

}  // namespace snug::jinja
