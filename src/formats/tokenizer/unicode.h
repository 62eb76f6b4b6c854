// formats/tokenizer/unicode.h — UTF-8, normal forms and the character classes that tokenizers ask for
//
// Normal forms are utf8proc's, held to the library's version of Unicode; classes are the library's (unicode_classes.h). Every function but repair_utf8 and incomplete_utf8_tail expects valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace snug {

struct CodePoint {
  char32_t value;
  size_t length;  // bytes
};

// The character that begins at text[at]; at < text.size().
CodePoint decode_utf8(std::string_view text, size_t at);
// The character that ends before text[end]; end > 0.
CodePoint decode_utf8_before(std::string_view text, size_t end);
void append_utf8(std::string& text, char32_t code);

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
// Every maximal part of an ill-formed sequence becomes one U+FFFD, as Python's errors="replace" and Rust's
// from_utf8_lossy do it. Appends to `out`.
void repair_utf8(std::string_view text, std::string& out);
// How many bytes at the end of `text` are the beginning of a character that more bytes could complete: 0 to 3.
size_t incomplete_utf8_tail(std::string_view text);

enum class NormalForm : uint8_t { kNFC, kNFD, kNFKC, kNFKD };
std::string normalize(NormalForm form, std::string_view text);

// Rust's char::is_whitespace: the property White_Space.
bool is_white_space(char32_t code);
// Rust's char::is_numeric: categories Nd, Nl, No.
bool is_numeric(char32_t code);
// Categories P* as the `tokenizers` library knows them, and all of ASCII that is printed and neither letter, digit nor
// space.
bool is_punctuation(char32_t code);
// \w of Rust's regular expressions: letters, marks, decimal digits, connectors, and what joins or separates letters (Persian).
bool is_word_character(char32_t code);
// Each character's lower case by itself (no context).
std::string lowercase_utf8(std::string_view text);

// GPT-2's table: the printable code point that stands for a byte, and back (-1 for any other).
char32_t byte_symbol(uint8_t byte);
int symbol_byte(char32_t code);

}  // namespace snug
