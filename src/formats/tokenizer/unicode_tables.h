// formats/tokenizer/unicode_tables.h — what the `tokenizers` library knows of characters: tables that tools/make_unicode_classes.py
// makes by asking it. Read through unicode_classes.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace snug::unicode_tables {

struct ClassRow {
  std::string_view names;       // separated by blanks; of Rust's classes one name, blanks and all
  std::string_view categories;  // the class is those …
  std::string_view runs;  // … but for these, where it is the other way round (CodePointSet::from_runs)
};
extern const std::span<const ClassRow> kCategories, kProperties, kScripts;  // of Oniguruma
extern const std::span<const ClassRow> kRustClasses;

// first, first + step, … (count of them), each to itself + difference.
struct MappingRow {
  char32_t first;
  uint32_t count, step;
  int32_t difference;
};
extern const std::span<const MappingRow> kLowercase;  // Rust's char::to_lowercase where that is one character
extern const std::span<const MappingRow>
    kSameLetters;  // the first of letters that (?i:…) does not tell apart, to each other one

// What (?i:…) takes for several letters.
struct SeveralRow {
  char32_t code;
  std::u32string_view letters;
};
extern const std::span<const SeveralRow> kSeveralLetters;

}  // namespace snug::unicode_tables
