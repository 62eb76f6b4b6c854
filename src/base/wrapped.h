// base/wrapped.h — text for people, broken into lines
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace snug {

// The characters of UTF-8 `text`.
size_t characters(std::string_view text);

// `text` broken at spaces into lines of at most `width` characters; a longer word has a line of its own.
std::vector<std::string> wrapped(std::string_view text, size_t width);

}  // namespace snug
