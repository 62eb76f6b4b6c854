#include "data/windows.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace snug {
namespace {

TEST(Schedule, OrderDoesNotDependOnBatchSize) {
  const auto order = [](int64_t batch, int64_t accumulation) {
    const Schedule schedule{
        .windows = 21, .batch = batch, .accumulation = accumulation, .shuffle = true, .seed = 5};
    std::vector<int64_t> windows;
    for (int64_t update = 0; update < 2 * schedule.updates_per_epoch(); ++update)
      for (int64_t step = 0; step < accumulation; ++step)
        for (int64_t row = 0; row < batch; ++row)
          if (const auto window = schedule.window(update, step, row)) windows.push_back(*window);
    return windows;
  };
  EXPECT_EQ(order(1, 1), order(4, 2));
  EXPECT_EQ(order(8, 1), order(4, 2));
  const std::vector<int64_t> both = order(4, 2);
  ASSERT_EQ(both.size(), 42u);
  EXPECT_EQ(std::set<int64_t>(both.begin(), both.begin() + 21).size(), 21u);
  EXPECT_NE(std::vector<int64_t>(both.begin(), both.begin() + 21),
            std::vector<int64_t>(both.begin() + 21, both.end()));
}

TEST(Schedule, LastUpdateOfAnEpochIsPadded) {
  const Schedule schedule{.windows = 5, .batch = 2, .accumulation = 2, .shuffle = false, .seed = 0};
  EXPECT_EQ(schedule.updates_per_epoch(), 2);
  EXPECT_EQ(schedule.window(1, 0, 0), 4);
  EXPECT_EQ(schedule.window(1, 0, 1), std::nullopt);
  EXPECT_EQ(schedule.window(1, 1, 0), std::nullopt);
  EXPECT_EQ(schedule.window(2, 0, 0), 0);  // the next epoch begins at an update
}

}  // namespace
}  // namespace snug
