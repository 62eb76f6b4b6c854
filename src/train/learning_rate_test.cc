#include "train/learning_rate.h"

#include <gtest/gtest.h>

namespace snug {
namespace {

using S = LearningRateSchedule;

TEST(LearningRate, LinearWithWarmup) {
  const LearningRate rate{S::kLinear, 1.0, 4, 12};
  EXPECT_EQ(rate.at(0), 0.0);
  EXPECT_EQ(rate.at(1), 0.25);
  EXPECT_EQ(rate.at(4), 1.0);
  EXPECT_EQ(rate.at(8), 0.5);  // (12 − 8) / (12 − 4)
  EXPECT_EQ(rate.at(12), 0.0);
  EXPECT_EQ(rate.at(20), 0.0);
}

TEST(LearningRate, Cosine) {
  const LearningRate rate{S::kCosine, 2.0, 0, 10};
  EXPECT_DOUBLE_EQ(rate.at(0), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(5), 1.0);
  EXPECT_NEAR(rate.at(10), 0.0, 1e-15);
}

TEST(LearningRate, OthersAtTheirLandmarks) {
  EXPECT_EQ((LearningRate{S::kConstant, 3.0, 5, 10}.at(0)),
            3.0);  // ignores warm-up, as transformers' constant does
  EXPECT_EQ((LearningRate{S::kConstantWithWarmup, 3.0, 6, 10}.at(2)), 1.0);
  EXPECT_EQ((LearningRate{S::kConstantWithWarmup, 3.0, 6, 10}.at(9)), 3.0);
  EXPECT_EQ((LearningRate{S::kPolynomial, 1.0, 0, 10}.at(10)), 1e-7);
  EXPECT_DOUBLE_EQ((LearningRate{S::kInverseSqrt, 1.0, 4, 100}.at(16)), 0.5);  // sqrt(4 / 16)
}

TEST(WarmupUpdates, ShareOrCount) {
  EXPECT_EQ(warmup_updates(0, 100), 0);
  EXPECT_EQ(warmup_updates(0.05, 90), 5);  // ceil(4.5)
  EXPECT_EQ(warmup_updates(7, 100), 7);
}

}  // namespace
}  // namespace snug
