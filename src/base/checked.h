// base/checked.h — integer arithmetic that throws instead of wrapping
//
// Sizes come from files and options, so a product of dimensions can exceed 64 bits. Overflow is reported as a UserError
// (ExitCode::kUsage): only a configuration far beyond any machine gets there.
#pragma once

#include <cstdint>

#include "base/errors.h"

namespace snug {

inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result))
    throw_user(ExitCode::kUsage, "size overflow: {} + {} exceeds 64 bits", a, b);
  return result;
}

inline int64_t checked_sub(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result))
    throw_user(ExitCode::kUsage, "size overflow: {} - {} exceeds 64 bits", a, b);
  return result;
}

inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    throw_user(ExitCode::kUsage, "size overflow: {} * {} exceeds 64 bits", a, b);
  return result;
}

// ceil(a / b) for a >= 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The smallest multiple of `unit` that is >= a (a >= 0, unit > 0).
inline int64_t round_up(int64_t a, int64_t unit) { return checked_mul(ceil_div(a, unit), unit); }

}  // namespace snug
