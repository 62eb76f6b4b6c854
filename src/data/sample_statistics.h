// data/sample_statistics.h — what prepared samples look like before anything is cut: lengths, and how many are there twice
#pragma once

#include <cstdint>
#include <vector>

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

// How many samples have the ids of an earlier one, by 64-bit hashes: two of a billion different ones are taken for equal with a
// probability of 3 %. `most_hashes` are held at a time, 8 bytes each; with more samples the ids are read several times.
int64_t count_duplicates(const SampleFile& samples, int64_t most_hashes = int64_t{1} << 22);

}  // namespace snug
