#include "observe/core_share.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(CoreShare, AMinuteBesideOthersIsToldOnceWithItsShare) {
  CoreShareWatch watch(2);
  EXPECT_TRUE(watch.due(100));
  EXPECT_FALSE(watch.look(CoreTimes{100, 5, 1}));
  EXPECT_FALSE(watch.due(159));
  EXPECT_FALSE(watch.look(CoreTimes{159, 30, 60}));  // not yet a minute
  ASSERT_TRUE(watch.due(160));
  // 48 of 120 seconds, 72 waited.
  const auto told = watch.look(CoreTimes{160, 53, 73});
  ASSERT_TRUE(told);
  EXPECT_THAT(*told, AllOf(HasSubstr("in the last 60 s this run got 0.80 of the 2 cores"), HasSubstr("for 60 % of"),
                           HasSubstr("--threads 1"), HasSubstr("change the bits")));
  EXPECT_FALSE(watch.due(1000));
  EXPECT_FALSE(watch.look(CoreTimes{300, 53, 200}));
}

TEST(CoreShare, WhatIsNearlyAloneOrSleepsIsNotTold) {
  CoreShareWatch watch(2);
  EXPECT_FALSE(watch.look(CoreTimes{0, 0, 0}));
  EXPECT_FALSE(watch.look(CoreTimes{60, 100, 20}));    // 0.83 of what it wanted
  EXPECT_FALSE(watch.look(CoreTimes{120, 110, 22}));   // slept for a disk, most of the time
  EXPECT_FALSE(watch.look(CoreTimes{180, 90, 10}));    // a thread has ended
  EXPECT_FALSE(watch.look(std::nullopt));
  EXPECT_TRUE(watch.look(CoreTimes{240, 130, 90}));  // each window is judged by itself
}

TEST(CoreShare, OneThreadHasNoFewer) {
  CoreShareWatch watch(1);
  watch.look(CoreTimes{0, 0, 0});
  const auto told = watch.look(CoreTimes{61, 20, 41});
  ASSERT_TRUE(told);
  EXPECT_THAT(*told, AllOf(HasSubstr("0.33 of the one core"), Not(HasSubstr("--threads"))));
}

TEST(CoreShare, TimesAreThoseOfAllThreads) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / "core_share";
  for (const auto& [thread, text] : {std::pair{"11", "1500000000 250000000 7\n"}, {"12", "500000000 750000000 9\n"}}) {
    fs::create_directories(root / "proc/self/task" / thread);
    std::ofstream(root / "proc/self/task" / thread / "schedstat") << text;
  }
  const auto times = core_times(root.string());
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->running, 2.0);
  EXPECT_DOUBLE_EQ(times->waiting, 1.0);
  fs::remove_all(root);
  EXPECT_FALSE(core_times(root.string()));
}

}  // namespace
}  // namespace snug
