#include "data/permutation.h"

#include <gtest/gtest.h>

#include <vector>

namespace snug {
namespace {

TEST(Permutation, VisitsEveryElementOnce) {
  for (int64_t count : {1, 2, 3, 4, 5, 7, 64, 65, 1000, 4097}) {
    const Permutation order(count, 42, 3);
    std::vector<int> seen(static_cast<size_t>(count), 0);
    for (int64_t i = 0; i < count; ++i) ++seen.at(static_cast<size_t>(order(i)));
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], 1) << count << " at " << i;
  }
}

TEST(Permutation, DependsOnSeedAndEpochAlone) {
  const Permutation a(1000, 42, 0), same(1000, 42, 0), other_epoch(1000, 42, 1), other_seed(1000, 43, 0);
  int moved_by_epoch = 0, moved_by_seed = 0, in_place = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), same(i));
    moved_by_epoch += a(i) != other_epoch(i);
    moved_by_seed += a(i) != other_seed(i);
    in_place += a(i) == i;
  }
  EXPECT_GT(moved_by_epoch, 950);
  EXPECT_GT(moved_by_seed, 950);
  EXPECT_LT(in_place, 10);
}

TEST(Permutation, NeighboursAreSpread) {
  // A uniform permutation of n = 4096 has mean |p(i+1) - p(i)| = (n+1)/3 = 1365.7; the standard error over 4095 pairs is about 15.
  const Permutation order(4096, 7, 0);
  double sum = 0;
  for (int64_t i = 0; i + 1 < 4096; ++i) sum += static_cast<double>(std::abs(order(i + 1) - order(i)));
  EXPECT_NEAR(sum / 4095, 1365.7, 75);
}

}  // namespace
}  // namespace snug
