// cli/options/option_values.h — an option's text as a value; for the files that make the table of options
#pragma once

#include <algorithm>
#include <cctype>
#include <cfloat>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"

namespace snug {

// What the f32 arithmetic of an update can hold.
inline constexpr double kLargestReal = FLT_MAX;

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw_user(ExitCode::kUsage, format, std::forward<Args>(args)...);
}

inline std::string lowercase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

inline bool read_bool(const std::string& text) {
  const std::string word = lowercase(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  refuse("found \"{}\"; expected true or false", text);
}

template <typename T>
T read_number(const std::string& text, T least, T most, std::string_view expected) {
  T value{};
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(value >= least && value <= most))
    refuse("found \"{}\"; expected {}", text, expected);
  return value;
}

}  // namespace snug
