#include "train/loss_scale.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace snug {
namespace {

void apply(LossScale& scale, int64_t updates) {
  for (int64_t i = 0; i < updates; ++i) scale.note_applied();
}

TEST(LossScale, DoublesAfterTwoThousandGoodUpdatesInARow) {
  LossScale scale;
  EXPECT_EQ(scale.value(), 65536);
  apply(scale, 1999);
  EXPECT_EQ(scale.value(), 65536);
  EXPECT_EQ(scale.good_updates(), 1999);
  apply(scale, 1);
  EXPECT_EQ(scale.value(), 131072);
  EXPECT_EQ(scale.good_updates(), 0);
  apply(scale, 2000);
  EXPECT_EQ(scale.value(), 262144);
}

TEST(LossScale, HalvesOnOverflowAndCountsAnew) {
  LossScale scale;
  apply(scale, 1999);
  ASSERT_TRUE(scale.note_overflow());
  EXPECT_EQ(scale.value(), 32768);
  EXPECT_EQ(scale.good_updates(), 0);
  apply(scale, 1999);
  EXPECT_EQ(scale.value(), 32768);
  apply(scale, 1);
  EXPECT_EQ(scale.value(), 65536);
}

TEST(LossScale, HasAFloorOfOne) {
  LossScale scale;
  for (int halvings = 0; halvings < 16; ++halvings) ASSERT_TRUE(scale.note_overflow()) << halvings;
  EXPECT_EQ(scale.value(), 1);
  EXPECT_FALSE(scale.note_overflow());
  EXPECT_EQ(scale.value(), 1);
  apply(scale, 2000);
  EXPECT_EQ(scale.value(), 2);
}

TEST(LossScale, KnowsThatTheForwardHasNoScale) {
  LossScale scale;
  apply(scale, 7);
  for (int i = 0; i < 30; ++i) scale.note_bad_loss();
  EXPECT_EQ(scale.value(), 65536);
  EXPECT_EQ(scale.good_updates(), 0) << "not in a row any more";
}

TEST(LossScale, StaysAPowerOfTwoWhoseInverseIsAnF32) {
  LossScale scale;
  apply(scale, 2000 * 60);
  EXPECT_EQ(scale.value(), LossScale::kLargest);
  EXPECT_GT(static_cast<float>(1 / scale.value()), 0.0f);
}

TEST(LossScale, StateSaysAllThatGoingOnNeeds) {
  LossScale scale;
  ASSERT_TRUE(scale.note_overflow());
  apply(scale, 17);
  EXPECT_EQ(scale.state().dump(), R"({"scale":32768.0,"good_updates":17})");
}

}  // namespace
}  // namespace snug
