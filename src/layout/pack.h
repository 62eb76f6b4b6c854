// layout/pack.h — finds a place for every buffer with a peak as near to the max-live bound as it can
//
// Why:     placing is strip packing (NP-hard), but lifetimes of a training step nest almost like a stack:
//          large buffers first, each in its lowest hole, reach the bound on such steps.
// Ensures: check() finds the solution good; max_live <= peak <= sum_of_sizes; the same problem and options
//          have the same solution on every machine (effort is limited by counted work, never by time).
// Method:  1. persistent buffers side by side from offset 0, in the order of their indices, so that problems
//             which begin with the same persistent buffers agree on their places; then the buffers that live
//             from the first to the last moment. This loses nothing.
//          2. The rest by first fit, in each order of order_names() until the peak meets the bound (or options.enough).
//             Some orders pack from both sides: where live bytes are nested deepest, two times stand out as a rule,
//             the end of the forward and that of the backward. What lives at the later one (gradients) grows from
//             the bottom, all else hangs from the top, what the forward saved first and the longest-lived highest:
//             then bytes are freed on one side of the free middle and taken on the other.
//          3. Where none meets it, squeaky wheel: again and again, with the buffer that found no place below
//             the best peak moved forward, as long as options.search_work lasts. It starts from one of the two-sided
//             orders: what is missing there is a block's own working set, mostly, and blocks are alike.
//          One pass costs O(n^2) at worst; 19,000 buffers take some hundredths of a second (bench/layout).
// Source:  portfolio and ties: measured on training traces (bench/layout). Squeaky wheel: Joslin and
//          Clements, "Squeaky Wheel Optimization", JAIR 10 (1999); here a pass stops at the first complaint.
// Not done: exact search. On adversarial problems (google/minimalloc, benchmarks/challenging) first fit
//          misses the optimum by far.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layout/layout.h"

namespace snug::layout {

struct PackOptions {
  // How many placed boxes the squeaky wheel may look at in all, 2 ns each; 0: it is off.
  int64_t search_work = 96'000'000;
  // A peak with which the caller is content: it is not lowered further.
  Bytes enough{0};
};

// Throws InternalError as verify() does.
Solution pack(const Problem& problem, const PackOptions& options = {});

// The orders of the portfolio, as they are tried. A name lists the sort keys: "size-down,first-up".
const std::vector<std::string>& order_names();

// Steps 1 and 2 with this order alone, for tests and comparisons. Throws InternalError for an unknown name.
Solution pack_in_order(const Problem& problem, std::string_view order);

}  // namespace snug::layout
