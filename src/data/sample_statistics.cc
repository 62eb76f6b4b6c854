#include "data/sample_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/xxhash.h"

namespace snug {
namespace {

constexpr int64_t kCountedLengths = int64_t{1} << 16;
constexpr int64_t kReadIds = int64_t{1} << 14;

uint64_t hash_of(const SampleFile& samples, const StoredSample& sample, std::vector<int32_t>& buffer) {
  Xxh64 hash;
  for (int64_t at = 0; at < sample.length; at += kReadIds) {
    buffer.resize(static_cast<size_t>(std::min(kReadIds, sample.length - at)));
    samples.read_ids(sample.first_id + at, buffer);
    hash.add(std::as_bytes(std::span(buffer)));
  }
  return hash.value();
}

}  // namespace

int64_t SampleStatistics::percentile(double percent) const {
  const auto wanted = static_cast<int64_t>(std::ceil(percent / 100 * static_cast<double>(samples)));
  int64_t seen = 0;
  for (size_t length = 0; length < counts.size(); ++length) {
    seen += counts[length];
    if (seen >= wanted) return std::min(longest, static_cast<int64_t>(length));
  }
  return longest;
}

SampleStatistics sample_statistics(const SampleFile& samples) {
  SampleStatistics found;
  found.counts.resize(static_cast<size_t>(kCountedLengths) + 1);
  std::vector<int64_t> by_width(65);
  double sum = 0;
  samples.visit([&](const StoredSample& sample) {
    const int64_t positions = std::max<int64_t>(0, sample.length - 1);
    found.shortest = found.samples == 0 ? positions : std::min(found.shortest, positions);
    found.longest = std::max(found.longest, positions);
    sum += static_cast<double>(positions);
    ++found.counts[static_cast<size_t>(std::min(positions, kCountedLengths))];
    ++by_width[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(positions)))];
    ++found.samples;
  });
  if (found.samples == 0) return found;
  found.mean = sum / static_cast<double>(found.samples);
  const auto width_of = [](int64_t positions) {
    return static_cast<int>(std::bit_width(static_cast<uint64_t>(positions)));
  };
  for (int width = width_of(found.shortest); width <= width_of(found.longest); ++width)
    found.histogram.push_back({width == 0 ? 0 : int64_t{1} << (width - 1), int64_t{1} << width,
                               by_width[static_cast<size_t>(width)]});
  return found;
}

int64_t count_duplicates(const SampleFile& samples, int64_t most_hashes) {
  std::vector<int32_t> buffer;
  return count_repetitions(
      samples.totals().samples,
      [&](const auto& take) {
        samples.visit([&](const StoredSample& sample) { take(hash_of(samples, sample, buffer)); });
      },
      most_hashes);
}

}  // namespace snug
