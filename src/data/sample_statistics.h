// data/sample_statistics.h — what prepared samples look like before anything is cut: lengths, and how many are there twice
#pragma once

#include <cstdint>
#include <vector>

#include "data/repetitions.h"
#include "data/sample_file.h"

namespace snug {

struct SampleStatistics {
  // Samples of [first, last) positions.
  struct Bucket {
    int64_t first, last, samples;
  };

  int64_t samples = 0;
  // In positions: one less than a sample's ids. At least `percent` of the samples have no more than percentile(percent); of those longer than
  // 2^16 it is told only that they are.
  int64_t shortest = 0, longest = 0;
  double mean = 0;
  int64_t percentile(double percent) const;
  std::vector<Bucket> histogram;  // between powers of two, from the shortest to the longest

  std::vector<int64_t> counts;  // by length, up to 2^16
};

// One pass over the lengths; 512 KiB.
SampleStatistics sample_statistics(const SampleFile& samples);

// How many samples have the ids of an earlier one, as count_repetitions() says.
int64_t count_duplicates(const SampleFile& samples, int64_t most_hashes = kMostHashes);

}  // namespace snug
