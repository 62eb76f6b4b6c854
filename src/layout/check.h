// layout/check.h — the independent judge of a packing: compares all pairs of buffers that share a byte, shares no code with pack.h
//
// Method: the definition itself for all pairs that share a byte; the others cannot overlap. O(n log n + pairs).
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
