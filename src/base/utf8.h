// base/utf8.h — text in UTF-8 cut to a size
#pragma once

#include <cstddef>
#include <string_view>

namespace snug {

// The beginning of `text` in whole characters: at most `most_bytes` of it.
inline std::string_view whole_characters(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace snug
