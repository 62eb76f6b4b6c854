// analysis/liveness.h — during which moments each byte of a Program is held
//
// Why:      the layout needs one list of buffers over all phases; the peak report needs the same list.
// Requires: every phase is verified; state, carried tensors and results match across phases by name, type
//           and shape.
// Method:   1. moments: the operations of all phases numbered through in phase order;
//           2. tensors that share storage become one buffer: aliases of operations, state of one name, a
//              carried tensor with the result (or carried tensor) of that name in the nearest earlier phase;
//           3. a buffer lives from the earliest to the latest moment of its tensors:
//                state    the whole plan;
//                input    from its phase's first moment (the host writes it before each repetition) to its
//                         last use;
//                carried  from the moment of its producer in the earlier phase; without one (an accumulator,
//                         which an earlier repetition produced) from its phase's first moment;
//                value    from its operation to its last use;
//                result   at least to the end of its phase, where the host may read it;
//           4. scratch lives during its operation's moment.
//           O(operands).
// See:      analysis/liveness_test.cc, where the intervals are drawn
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "ir/graph.h"
#include "plan/target.h"

namespace snug {

// A tensor of a phase.
struct TensorRef {
  int32_t phase = 0;
  TensorId tensor;
  friend bool operator==(const TensorRef&, const TensorRef&) = default;
};

// Bytes with one lifetime: tensors that share storage, or one operation's scratch.
struct TimelineBuffer {
  int64_t first = 0, last = 0;  // moments [first, last)
  Bytes bytes;                  // of the largest tensor; not rounded
  Category category = Category::kActivations;
  bool persistent = false;         // state
  std::vector<TensorRef> tensors;  // in phase order, then tensor order; empty for scratch
  friend bool operator==(const TimelineBuffer&, const TimelineBuffer&) = default;
};

// The moments [first, last) of one tensor of one phase, inside its buffer's: from its operation to its last
// use, by the rules above.
struct Lifetime {
  int64_t first = 0, last = 0;
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

struct Timeline {
  std::vector<TimelineBuffer> buffers;
  std::vector<std::vector<Lifetime>> lifetimes;  // [phase][tensor]
  std::vector<std::vector<int32_t>> buffer_of;   // [phase][tensor] → buffer
  std::vector<std::vector<int32_t>> scratch_of;  // [phase][operation] → buffer, or -1 where it needs none
  std::vector<int64_t> first_moment;             // [phase] of its first operation
  int64_t moments = 0;                           // of all phases together
};

// `staging` is the scratch of an operation that the host carries out (read_tensor, write_tensor); the others
// ask `target`. Throws InternalError where phases disagree about a name, a carried tensor has no producer, or
// a shared name's types differ.
Timeline liveness(const Program& program, const Target& target, Bytes staging);

}  // namespace snug
