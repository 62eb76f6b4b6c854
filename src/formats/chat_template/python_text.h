// formats/chat_template/python_text.h — Python's str over UTF-8 bytes: what templates do with text
//
// Positions and lengths of Python are in characters; these functions take and give bytes unless they say so. A byte that belongs to no
// character counts as one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace snug::jinja {

struct Character {
  char32_t code = 0;
  size_t bytes = 1;
};

// The character at `offset` < text.size().
Character character_at(std::string_view text, size_t offset);
// The character that ends at `end` > 0.
Character character_before(std::string_view text, size_t end);
void append_character(std::string& text, char32_t code);

// Length in characters.
size_t count_characters(std::string_view text);
// Offset in bytes of the character `index`; text.size() for one at or behind the end.
size_t character_offset(std::string_view text, size_t index);

bool is_space(char32_t code);
bool is_printable(char32_t code);

// str.strip, lstrip, rstrip: of white space, or of the characters in `characters`.
std::string_view strip(std::string_view text, std::optional<std::string_view> characters = std::nullopt,
                       bool left = true, bool right = true);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string casefold(std::string_view text);
std::string capitalize(std::string_view text);
std::string swapcase(std::string_view text);
// str.title(); the filter `title` is another (jinja_title).
std::string title(std::string_view text);
// The filter `title`: a word begins behind white space and - ( { [ <.
std::string jinja_title(std::string_view text);

// str.isalpha and its kin, for a text that is not empty. Lower and upper are categories Ll and Lu, without signs such as ª and Ⅳ, which
// Python counts with them.
enum class TextClass : uint8_t {
  kAlpha,
  kAlnum,
  kDecimal,
  kSpace,
  kLower,
  kUpper,
  kTitle,
  kAscii,
  kPrintable
};
bool belongs(std::string_view text, TextClass what);

// str.split, rsplit at white space, or at `separator` (not empty); at most `most` cuts where it is not negative.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    int64_t most, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// str.replace, at most `most` times where it is not negative.
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t most);

// repr(text).
std::string repr(std::string_view text);
// repr of a float.
std::string float_text(double value);

}  // namespace snug::jinja
