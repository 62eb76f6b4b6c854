// formats/tokenizer/unicode_classes.h — classes of characters as the `tokenizers` library has them
//
// Oniguruma's, which expressions of tokenizer files name, and Rust's, which its other parts ask for. From generated tables
// (unicode_tables.h), whatever the version of PCRE2 and utf8proc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer/code_points.h"

namespace snug {

struct OnigurumaClass {
  CodePointSet members;
  // What is nearly the same to PCRE2, to stand inside a class of its: "\p{Lu}\p{Lt}".
  std::string pcre2;
};
// \p{NAME}: a general category, a script, or one of the properties that expressions use; as Oniguruma compares names, without
// regard to case, blanks, - and _. Null when it is none of them. Valid for the life of the process; any thread.
const OnigurumaClass* oniguruma_class(std::string_view name);
// [[:NAME:]], where [[:punct:]] has symbols too.
const OnigurumaClass* posix_class(std::string_view name);
// \w outside of a class, and what \b looks at: unlike [\w], with ² ³ ¹ ¼ ½ ¾.
const OnigurumaClass& bare_word_class();

// What (?i:…) does not tell from `code`, itself among it, ascending.
std::vector<char32_t> same_letters(char32_t code);
// The set and all that (?i:…) does not tell from its members.
CodePointSet with_same_letters(const CodePointSet& set);
// What (?i:…) reads `code` as: several letters, as ss for ß, else itself; each the first of its same_letters.
std::u32string folded_letters(char32_t code);
// The characters that (?i:…) reads as the beginning of `folded`, which folded_letters made, and as as much of it as any does.
struct SeveralLetters {
  size_t length = 0;  // of that beginning; 0 where there are none
  CodePointSet codes;
};
SeveralLetters find_several_letters(std::u32string_view folded);
// The characters that folded_letters reads as several.
const CodePointSet& several_letters();

// Rust's, as the library was built with.
const CodePointSet& rust_class(std::string_view name);  // "word", "numeric", "punctuation", "white space"
// Rust's char::to_lowercase, but for U+0130, which becomes two characters.
char32_t rust_lowercase(char32_t code);

}  // namespace snug
