// data/repetitions.h — how many of many things are there more than once, in bounded memory
#pragma once

#include <cstdint>
#include <functional>

namespace snug {

constexpr int64_t kMostHashes = int64_t{1} << 22;

// How many of `count` things have the 64-bit hash of an earlier one: two of a billion different ones are taken for equal with a
// probability of 3 %. `visit` gives the hash of each to `take`; `most_hashes` are held at a time, 8 bytes each, and with more things
// it is called several times.
int64_t count_repetitions(int64_t count,
                          const std::function<void(const std::function<void(uint64_t)>& take)>& visit,
                          int64_t most_hashes = kMostHashes);

}  // namespace snug
