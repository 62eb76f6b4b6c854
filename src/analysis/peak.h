// analysis/peak.h — how many bytes are held at each moment, and what holds them at the worst one
//
// Every buffer counts with its bytes rounded up to the alignment, as in the layout, so the largest peak is
// the layout's lower bound.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/liveness.h"
#include "base/bytes.h"
#include "ir/graph.h"

namespace snug {

constexpr size_t kCategories = 7;  // values of Category

struct PhasePeak {
  std::string phase;
  std::string operation;  // logical name of the operation at the peak's first moment; empty for a phase
                          // without operations
  int64_t moment = 0;
  Bytes bytes;
  std::array<Bytes, kCategories> categories;  // indexed by Category; they sum to `bytes`
};

// One entry a phase, in order. Method: a difference array over moments, then one pass over the buffers a
// phase.
std::vector<PhasePeak> phase_peaks(const Program& program, const Timeline& timeline, Bytes alignment);

// The most bytes that each category holds at any moment of the program, indexed by Category.
std::array<Bytes, kCategories> category_peaks(const Timeline& timeline, Bytes alignment);

// The entry with the most bytes, the first of equals. `peaks` is not empty.
const PhasePeak& largest_peak(const std::vector<PhasePeak>& peaks);

}  // namespace snug
