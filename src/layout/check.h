// layout/check.h — the independent judge of a packing: compares all pairs of buffers, shares nothing with pack.h
//
// Method: the definition itself, all pairs, O(n^2); about a quarter of a second for 19,000 buffers.
#pragma once

#include <string>
#include <string_view>

#include "layout/layout.h"

namespace snug::layout {

enum class Verdict {
  kGood,
  kWrongCount,  // not one offset a buffer
  kNegativeOffset,
  kMisaligned,  // an offset that is no multiple of the alignment
  kAbovePeak,   // a buffer that ends above Solution::peak
  kOverlap,     // two buffers with a moment and a byte in common
};

std::string_view name(Verdict verdict);

struct Check {
  Verdict verdict = Verdict::kGood;
  std::string message;  // "good", or which buffers, where they lie and what they break
  explicit operator bool() const { return verdict == Verdict::kGood; }
};

// The first broken rule, in the order of the enumeration, or kGood.
Check check(const Problem& problem, const Solution& solution);

}  // namespace snug::layout
