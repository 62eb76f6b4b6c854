#include "base/wrapped.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace snug {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Wrapped, BreaksAtSpacesByCharacters) {
  EXPECT_EQ(characters("0–6, 8"), 6u);
  EXPECT_THAT(wrapped("0–6, 8–13, 15", 10), ElementsAre("0–6, 8–13,", "15"));
  EXPECT_THAT(wrapped("0–6, 8–13, 15", 9), ElementsAre("0–6,", "8–13, 15"));
  EXPECT_THAT(wrapped("a longword b", 3), ElementsAre("a", "longword", "b"));
  EXPECT_THAT(wrapped("", 3), IsEmpty());
}

}  // namespace
}  // namespace snug
