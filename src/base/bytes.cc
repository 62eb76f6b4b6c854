#include "base/bytes.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace snug {

std::string format_bytes(Bytes bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const double magnitude = std::fabs(static_cast<double>(bytes.value));
  if (magnitude < 1024) return fmt::format("{} B", bytes.value);
  double scaled = static_cast<double>(bytes.value) / 1024;
  size_t unit = 0;
  while (std::fabs(scaled) >= 1023.95 && unit + 1 < kUnits.size()) {
    scaled /= 1024;
    ++unit;
  }
  return std::fabs(scaled) < 10 ? fmt::format("{:.2f} {}", scaled, kUnits[unit])
                                : fmt::format("{:.1f} {}", scaled, kUnits[unit]);
}

Bytes parse_bytes(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    throw_user(ExitCode::kUsage, "\"{}\" is not a size: {} (expected for example 900MiB, 2GB, 1.5GiB or a number of bytes)",
               text, why);
  };
  std::string_view rest = text;
  const auto trim = [](std::string_view s) {
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
    return s;
  };
  rest = trim(rest);
  size_t digits = 0;
  while (digits < rest.size() && (std::isdigit(static_cast<unsigned char>(rest[digits])) || rest[digits] == '.')) ++digits;
  if (digits == 0) refuse("it does not begin with a number");
  double number = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + digits, number);
  if (parsed.ec != std::errc() || parsed.ptr != rest.data() + digits) refuse("the number is malformed");
  std::string unit;
  for (char c : trim(rest.substr(digits))) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double scale = 0;
  if (unit.empty() || unit == "b") scale = 1;
  constexpr std::string_view kPrefixes = "kmgtp";
  for (size_t i = 0; i < kPrefixes.size(); ++i) {
    if (unit == std::string{kPrefixes[i]} + "ib") scale = std::pow(1024.0, static_cast<double>(i + 1));
    if (unit == std::string{kPrefixes[i]} + "b") scale = std::pow(1000.0, static_cast<double>(i + 1));
    if (unit == std::string{kPrefixes[i]})
      refuse(fmt::format("the unit \"{}\" is ambiguous; write {}iB or {}B", trim(rest.substr(digits)),
                         static_cast<char>(std::toupper(kPrefixes[i])), static_cast<char>(std::toupper(kPrefixes[i]))));
  }
  if (scale == 0) refuse(fmt::format("unknown unit \"{}\"", trim(rest.substr(digits))));
  const double value = number * scale;
  if (!(value < 9.0e18)) refuse("it exceeds 64 bits");
  if (scale == 1 && value != std::floor(value)) refuse("a number of bytes must be whole");
  return Bytes(static_cast<int64_t>(value));
}

}  // namespace snug
