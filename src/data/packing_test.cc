#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/errors.h"

namespace snug {
namespace {

// Capacity 10, from the largest: 7 | 6 | 4 goes to the 6 | 3 to the 7 | 3 begins the third bin | 2 to it.
//   bin 0  7777777333     bin 1  6666664444     bin 2  33322
TEST(FirstFitDecreasing, EachGoesIntoTheFirstBinWithRoom) {
  const std::vector<int32_t> sizes = {3, 7, 4, 2, 6, 3};
  EXPECT_EQ(first_fit_decreasing(sizes, 10), (std::vector<int32_t>{0, 0, 1, 2, 1, 2}));
}

TEST(FirstFitDecreasing, OneAndNone) {
  EXPECT_TRUE(first_fit_decreasing({}, 10).empty());
  const std::vector<int32_t> one = {10}, large = {11};
  EXPECT_EQ(first_fit_decreasing(one, 10), std::vector<int32_t>{0});
  EXPECT_THROW(first_fit_decreasing(large, 10), InternalError);
}

// The same bins as those of the plain search from the first bin on.
TEST(FirstFitDecreasing, IsThePlainSearch) {
  std::mt19937 random(7);
  for (const size_t count : {5u, 64u, 1000u}) {
    std::vector<int32_t> sizes(count);
    for (int32_t& size : sizes) size = static_cast<int32_t>(1 + random() % 100);
    const std::vector<int32_t> bins = first_fit_decreasing(sizes, 100);

    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
    std::vector<int32_t> room;
    for (const size_t piece : order) {
      size_t bin = 0;
      while (bin < room.size() && room[bin] < sizes[piece]) ++bin;
      if (bin == room.size()) room.push_back(100);
      room[bin] -= sizes[piece];
      EXPECT_EQ(bins[piece], static_cast<int32_t>(bin)) << piece << " of " << count;
    }
  }
}

}  // namespace
}  // namespace snug
