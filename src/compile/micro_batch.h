// compile/micro_batch.h — how many samples of a global batch are computed at a time
//
// Why:    a larger micro-batch reads the weights less often, but holds more activations, of which more must then be made
//         again. Another micro-batch is another order of sums, so the answer shall follow from budget and model: the same
//         numbers on a faster machine, with costs measured or estimated.
// Rule:   the micro-batch whose plan within the budget does the least work in one update; of equal ones the largest. The
//         work of an operation is the larger of its FLOPs (those that it makes again among them) and 32 times the bytes that it reads and writes: what processors
//         and accelerators alike do in the time of one byte, within a factor of two or three. Its sum over an update
//         counts what is computed again as well as weights that are read once a micro-step, and no machine goes into it.
// Method: sizes are tried by rising size; the plan of each is sought (outer_search.h) with work in place of seconds (work_target.h).
//         Larger sizes hold more, so the search ends at the first that does not fit, or once what is repeated already at this
//         size is more than all that larger ones could save. The largest is tried in any case: where it is the global
//         batch, no gradient is held from one micro-step to the next, so that it may need less than smaller ones.
// See:    docs/planner.md
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compile/outer_search.h"

namespace snug {

// Positive divisors of `number` ≥ 1, rising.
std::vector<int64_t> divisors(int64_t number);

struct MicroBatch {
  int64_t size = 1;
  bool fits = false;
};

// The micro-batch by the rule above, one of `sizes` (rising, at least one); where none fits, of those that were tried the one that needs the
// least. `variants_of` gives the variants of the run with a micro-batch of that size, all with the same samples an update. Sizes whose
// bytes exceed 64 bits do not fit. Searches with memory.by_work().
MicroBatch choose_micro_batch(SearchMemory& memory, std::span<const int64_t> sizes,
                              const std::function<std::vector<Variant>(int64_t)>& variants_of,
                              Bytes arena_budget, const RecomputePolicy& policy);

}  // namespace snug
