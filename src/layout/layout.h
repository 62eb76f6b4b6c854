// layout/layout.h — the packing problem and its solution as plain data: which bytes of an arena a buffer gets
//
// A buffer lives in the half-open moments [first, last) and takes the half-open bytes [offset, offset + size)
// of its arena. Two buffers that live at a common moment share no byte. A place costs its size rounded up to
// the alignment.
//
//   offset
//     3 | . b b        Problem{.buffers = {{.first = 0, .last = 2, .size = Bytes(2)},    // a
//     2 | . b b                            {.first = 1, .last = 3, .size = Bytes(2)}}}   // b
//     1 | a a .
//     0 | a a .        Solution{.offsets = {Bytes(0), Bytes(2)}, .peak = Bytes(4)}
//       +-------
//         0 1 2  moment
//
// Words:  max-live bound = the largest sum of sizes alive at one moment; no solution is smaller.
// Source: the plain problem/solution/checker split of google/minimalloc, src/minimalloc.h.
// See:    pack.h (problem -> solution), check.h (the independent judge), text.h (CSV), picture.h
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace snug::layout {

struct Buffer {
  int64_t first = 0;        // the first moment it lives at, >= 0
  int64_t last = 0;         // the first moment at which it is gone, > first
  Bytes size{};             // >= 0; a buffer of zero bytes gets offset 0 and meets nobody
  bool persistent = false;  // lives at every moment, whatever first and last say
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct Problem {
  std::vector<Buffer> buffers{};
  Bytes alignment{1};  // every offset is a multiple of it, > 0
  friend bool operator==(const Problem&, const Problem&) = default;
};

struct Solution {
  std::vector<Bytes> offsets{};  // offsets[i] is the place of buffers[i]
  Bytes peak{};                  // size of the arena: the largest offset + size rounded up to the alignment
  std::string order{};           // which order of placing won, for reports
  friend bool operator==(const Solution&, const Solution&) = default;
};

// Throws InternalError, with the buffer's index, when a moment, size or alignment is out of the range above.
void verify(const Problem& problem);

// The max-live bound: the largest sum of sizes (each rounded up to the alignment) that live at one moment.
// Throws as verify() does.
Bytes max_live(const Problem& problem);

// What the buffers would take if none shared a byte: the sum of the sizes rounded up to the alignment.
Bytes sum_of_sizes(const Problem& problem);

}  // namespace snug::layout
