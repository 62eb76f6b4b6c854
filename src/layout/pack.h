// layout/pack.h — finds a place for every buffer with a peak as near to the max-live bound as it can
//
// Why:     placing is strip packing (NP-hard), but lifetimes of a training step nest almost like a stack, and
// placing
//          large buffers first, each at its lowest hole, reaches the bound on such steps.
// Ensures: a solution that check() finds good; max_live <= peak <= sum_of_sizes; same problem and options,
// same
//          solution, on every machine (effort is limited by counted work, never by time).
// Method:  1. persistent buffers and those that live from the first to the last moment: side by side at the
// bottom,
//             which loses nothing;
//          2. the rest by first fit in each order of order_names() until the peak meets the bound;
//          3. where none meets it, squeaky wheel: place again with the buffers that ended above the bound
//          moved forward,
//             as long as options.search_work lasts.
//          One pass costs O(n^2) at worst; 19,000 buffers take some hundredths of a second (bench/layout).
// Source:  portfolio and tie-breaks: memory planning survey, measured on training traces; squeaky wheel:
// Joslin and
//          Clements, "Squeaky Wheel Optimization", JAIR 10 (1999).
// Not done: exact search. On adversarial problems (google/minimalloc benchmarks/challenging) first fit misses
// the
//          optimum by a fifth and more.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layout/layout.h"

namespace snug::layout {

struct PackOptions {
  // Placed boxes that the squeaky wheel may look at in all; 0 switches it off. A million take about a
  // millisecond.
  int64_t search_work = 200'000'000;
};

// Throws InternalError as verify() does.
Solution pack(const Problem& problem, const PackOptions& options = {});

// The orders of the portfolio, in the order in which they are tried. A name lists the sort keys:
// "size-down,first-up".
const std::vector<std::string>& order_names();

// Steps 1 and 2 of pack() with this order alone, for tests and comparisons. Throws InternalError for an
// unknown name.
Solution pack_in_order(const Problem& problem, std::string_view order);

}  // namespace snug::layout
