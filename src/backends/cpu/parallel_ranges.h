// backends/cpu/parallel_ranges.h — splitting a loop over OpenMP threads into contiguous ranges
//
// For loops whose iterations do not touch each other's results: the bits are the same for any number of
// threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace snug::cpu {

// Calls body(first, last) on disjoint ranges that cover [0, count); every `first` is a multiple of `unit`. At
// most one range a thread, and fewer threads where a thread would get less than `smallest` iterations. `body`
// must not throw.
template <typename Body>
void parallel_ranges(int threads, int64_t count, int64_t unit, int64_t smallest, const Body& body) {
  const int64_t units = ceil_div(count, unit);
  const int64_t useful = std::clamp<int64_t>(count / std::max<int64_t>(smallest, 1), 1, threads);
  if (useful == 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(useful))
  {
    const int64_t team = omp_get_num_threads(), member = omp_get_thread_num();
    const int64_t first = units * member / team * unit,
                  last = std::min(count, units * (member + 1) / team * unit);
    if (first < last) body(first, last);
  }
}

}  // namespace snug::cpu
