// data/packing.h — pieces into bins of one size: first fit decreasing
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace snug {

// The bin of each piece, bins counted from 0 in the order in which they were begun. From the largest piece to the smallest, equal ones in
// their own order, each goes into the first bin that has room. Sizes are from 1 to `capacity`. At most 11/9 of the smallest number of bins
// and 2/3 of one (Dósa 2007). O(n log n) by a tournament tree over the room that bins have left.
std::vector<int32_t> first_fit_decreasing(std::span<const int32_t> sizes, int32_t capacity);

}  // namespace snug
