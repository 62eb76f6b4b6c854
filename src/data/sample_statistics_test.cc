#include "data/sample_statistics.h"

#include <set>

#include "base/testing.h"

namespace snug {
namespace {

std::unique_ptr<const SampleFile> file_of(const std::string& path,
                                          const std::vector<std::vector<int32_t>>& rows) {
  {
    SampleWriter writer(path, {1, 2}, 70000);
    for (const auto& ids : rows) writer.add(ids, {}, true);
    writer.finish();
  }
  std::string why;
  return SampleFile::open(path, {1, 2}, 70000, why);
}

// Positions 0, 1, 2, 3 and 99: of the widths 0, 1, 2, 2 and 7.
TEST(SampleStatistics, Lengths) {
  const TemporaryDirectory directory;
  std::vector<std::vector<int32_t>> rows;
  for (const size_t size : {1u, 4u, 2u, 100u, 3u}) rows.emplace_back(size, 7);
  const SampleStatistics found = sample_statistics(*file_of(directory / "a", rows));
  EXPECT_EQ(found.samples, 5);
  EXPECT_EQ(found.shortest, 0);
  EXPECT_EQ(found.longest, 99);
  EXPECT_DOUBLE_EQ(found.mean, 21);
  EXPECT_EQ(found.percentile(50), 2);
  EXPECT_EQ(found.percentile(80), 3);
  EXPECT_EQ(found.percentile(95), 99);
  std::vector<int64_t> samples;
  for (const auto& bucket : found.histogram) {
    EXPECT_EQ(bucket.last, bucket.first == 0 ? 1 : 2 * bucket.first);
    samples.push_back(bucket.samples);
  }
  EXPECT_EQ(samples, (std::vector<int64_t>{1, 1, 2, 0, 0, 0, 0, 1}));
}

TEST(SampleStatistics, DuplicatesAreCountedInAnyMemory) {
  const TemporaryDirectory directory;
  std::vector<std::vector<int32_t>> rows;
  std::set<std::vector<int32_t>> different;
  for (int i = 0; i < 3000; ++i) {
    rows.emplace_back(std::vector<int32_t>{i % 7, i % 11, i % 13});
    different.insert(rows.back());
  }
  rows.emplace_back(40000, 5);  // longer than what is read at a time
  rows.emplace_back(40000, 5);
  rows.back()[39999] = 6;
  rows.push_back(rows.back());
  const auto file = file_of(directory / "a", rows);
  const auto expected = 3000 - static_cast<int64_t>(different.size()) + 1;
  for (const int64_t most : {1 << 22, 1000, 10}) EXPECT_EQ(count_duplicates(*file, most), expected) << most;
}

}  // namespace
}  // namespace snug
