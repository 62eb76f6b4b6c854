#include "base/wrapped.h"

#include <algorithm>

namespace snug {

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (lines.empty() || characters(lines.back()) + 1 + characters(word) > width)
      lines.emplace_back(word);
    else
      lines.back().append(" ").append(word);
    begin = end + 1;
  }
  return lines;
}

}  // namespace snug
