#include "layout/first_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace snug::layout {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

//   offset
//     5 | d d
//     4 | d d
//     3 | . c      a: 2 units at time 0, b: 1 unit at time 1, then
//     2 | . c      c: 3 units at time 1 finds its hole above b,
//     1 | a c      d: 2 units at both times above everything
//     0 | a b
TEST(FirstFit, TakesTheLowestHole) {
  FirstFit arena(2);
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 2}, kNoLimit), 0);
  EXPECT_EQ(arena.place({.first = 1, .last = 2, .size = 1}, kNoLimit), 0);
  EXPECT_EQ(arena.place({.first = 1, .last = 2, .size = 3}, kNoLimit), 1);
  EXPECT_EQ(arena.place({.first = 0, .last = 2, .size = 2}, kNoLimit), 4);
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 3}, kNoLimit), 6);  // the hole [2, 4) is too small
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 2}, kNoLimit), 2);  // and fits this one exactly
}

TEST(FirstFit, KeepsClearOfWhatWasPut) {
  FirstFit arena(2);
  arena.put({.first = 0, .last = 1, .size = 2}, 3);
  EXPECT_EQ(arena.place({.first = 0, .last = 2, .size = 4}, kNoLimit), 5);  // the hole [0, 3) is too small
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 3}, kNoLimit), 0);
  EXPECT_EQ(arena.place({.first = 1, .last = 2, .size = 5}, kNoLimit), 0);  // meets nothing that was put
}

TEST(FirstFit, RefusesWhatWouldEndAboveTheLimitAndStaysAsItWas) {
  FirstFit arena(1);
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 6}, 10), 0);
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 5}, 10), std::nullopt);
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 4}, 10), 6);
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 1}, 10), std::nullopt);
  arena.clear();
  EXPECT_EQ(arena.place({.first = 0, .last = 1, .size = 10}, 10), 0);
}

// The definition: try offset 0 and the end of every placed box, lowest first, against all boxes.
int64_t lowest_hole(const std::vector<Box>& boxes, const std::vector<int64_t>& offsets, const Box& box) {
  std::vector<int64_t> candidates = {0};
  for (size_t i = 0; i < boxes.size(); ++i) candidates.push_back(offsets[i] + boxes[i].size);
  std::sort(candidates.begin(), candidates.end());
  for (const int64_t candidate : candidates) {
    bool free = true;
    for (size_t i = 0; free && i < boxes.size(); ++i)
      free = boxes[i].last <= box.first || box.last <= boxes[i].first ||
             offsets[i] + boxes[i].size <= candidate || candidate + box.size <= offsets[i];
    if (free) return candidate;
  }
  return -1;
}

// Enough boxes for several chunks to fill, split and be reused, over more times than a mask has buckets.
TEST(FirstFit, AgreesWithTheDefinition) {
  std::mt19937_64 random(7);
  constexpr int32_t kTimes = 3000;
  FirstFit arena(kTimes);
  for (int round = 0; round < 3; ++round) {
    arena.clear();
    std::vector<Box> boxes;
    std::vector<int64_t> offsets;
    for (int i = 0; i < 900; ++i) {
      const int32_t first = static_cast<int32_t>(random() % kTimes);
      const int32_t length = 1 + static_cast<int32_t>(random() % (i % 10 == 0 ? kTimes : 100));
      const Box box{first, std::min(first + length, kTimes), 1 + static_cast<int64_t>(random() % 50)};
      const int64_t expected = lowest_hole(boxes, offsets, box);
      ASSERT_EQ(arena.place(box, kNoLimit), expected) << "round " << round << ", box " << i;
      boxes.push_back(box);
      offsets.push_back(expected);
    }
  }
  EXPECT_GT(arena.work(), 0);
}

}  // namespace
}  // namespace snug::layout
