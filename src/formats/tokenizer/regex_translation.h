// formats/tokenizer/regex_translation.h — expressions as Oniguruma reads them → expressions of PCRE2 that mean the same
#pragma once

#include <string>
#include <string_view>

#include "formats/tokenizer/code_points.h"

namespace snug {

struct TranslatedRegex {
  // PCRE2's classes stand for Oniguruma's. On texts without a character of `differs` it matches what the expression matches.
  std::string pattern;
  // The same with PCRE2's classes mended: right on every text and, where any had to be, slower.
  std::string exact;
  CodePointSet differs;
  bool looks_back = false;  // may depend on what stands before the place where a search begins
};

// The members of a class of PCRE2, [items]; of what PCRE2 does not know, none. `near` is nearly the same.
using EngineClass = const CodePointSet& (*)(const std::string& items, const CodePointSet& near);

// `where` begins messages: "tokenizer.json: pre_tokenizer.pattern". Throws UserError(kBadFile) that names what has no translation.
TranslatedRegex translate_regex(std::string_view pattern, std::string_view where, EngineClass engine);

}  // namespace snug
