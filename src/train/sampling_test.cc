#include "train/sampling.h"

#include <gtest/gtest.h>

#include <cmath>

namespace snug {
namespace {

TEST(Sampler, GreedyTakesTheFirstOfEquals) {
  Sampler sampler({.temperature = 0}, 1, 4);
  EXPECT_EQ(sampler.next(std::vector<float>{0, 3, 3, 1}), 1);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  // p = (0.1, 0.2, 0.7): 20,000 draws have a standard error below 0.0036.
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(7.0f)};
  Sampler sampler({.temperature = 1, .top_k = 0, .top_p = 1}, 7, 3);
  std::vector<int> count(3);
  for (int i = 0; i < 20000; ++i) ++count[static_cast<size_t>(sampler.next(logits))];
  EXPECT_NEAR(count[0] / 20000.0, 0.1, 0.015);
  EXPECT_NEAR(count[1] / 20000.0, 0.2, 0.015);
  EXPECT_NEAR(count[2] / 20000.0, 0.7, 0.015);
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  const std::vector<float> logits = {std::log(4.0f), std::log(3.0f), std::log(2.0f), std::log(1.0f)};
  Sampler two({.temperature = 1, .top_k = 2}, 3, 4);
  Sampler most({.temperature = 1, .top_k = 0, .top_p = 0.75}, 3,
               4);  // 0.4 + 0.3 < 0.75 ≤ 0.4 + 0.3 + 0.2: three tokens
  bool third = false;
  for (int i = 0; i < 2000; ++i) {
    EXPECT_LT(two.next(logits), 2);
    const int32_t token = most.next(logits);
    EXPECT_LT(token, 3);
    third |= token == 2;
  }
  EXPECT_TRUE(third);
}

TEST(Sampler, SeedRepeats) {
  const std::vector<float> logits = {1, 2, 3, 2, 1};
  Sampler a({}, 11, 5), b({}, 11, 5);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(logits), b.next(logits));
}

}  // namespace
}  // namespace snug
