// cli/options/option_values.h — an option's text as a value; for the files that make the table of options
#pragma once

#include <algorithm>
#include <cctype>
#include <cfloat>
#include <charconv>
#include <optional>
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

inline std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// The truth value that a word means, in any case; none for other words. The words of YAML 1.1 and of Hugging Face's argument parser.
inline std::optional<bool> truth_value(std::string_view text) {
  const std::string word = lowercase(without_blanks(text));
  for (const char* yes : {"true", "yes", "on", "1", "y", "t"})
    if (word == yes) return true;
  for (const char* no : {"false", "no", "off", "0", "n", "f"})
    if (word == no) return false;
  return std::nullopt;
}

inline bool read_bool(const std::string& text) {
  if (const auto value = truth_value(text)) return *value;
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
