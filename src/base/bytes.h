// base/bytes.h — a count of bytes as a type of its own, with checked arithmetic and its text form
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/checked.h"

namespace snug {

struct Bytes {
  int64_t value = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(int64_t v) : value(v) {}
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend Bytes operator+(Bytes a, Bytes b) { return Bytes(checked_add(a.value, b.value)); }
  friend Bytes operator-(Bytes a, Bytes b) { return Bytes(checked_sub(a.value, b.value)); }
  friend Bytes operator*(Bytes a, int64_t n) { return Bytes(checked_mul(a.value, n)); }
  friend Bytes operator*(int64_t n, Bytes a) { return a * n; }
  Bytes& operator+=(Bytes b) { return *this = *this + b; }
  Bytes& operator-=(Bytes b) { return *this = *this - b; }
};

constexpr Bytes kKiB{1024};
constexpr Bytes kMiB{1024 * 1024};
constexpr Bytes kGiB{1024LL * 1024 * 1024};

inline Bytes round_up(Bytes a, Bytes unit) { return Bytes(round_up(a.value, unit.value)); }

// "786.0 MiB", "1.99 GiB", "512 B": binary units, at most four digits.
std::string format_bytes(Bytes bytes);

// Reads "900MiB", "2GB", "1.5 GiB", "4096" (a bare number is bytes; KB/MB/GB/TB are powers of 1000, KiB/… of 1024;
// letters in either case; "K", "M", "G", "T" alone are refused as ambiguous). Throws UserError(kUsage) that quotes the text.
Bytes parse_bytes(std::string_view text);

}  // namespace snug
