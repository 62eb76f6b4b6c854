#include "train/initialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace snug {
namespace {

ParameterSpec normal(const std::string& name, double std) {
  return {.name = name, .shape = {1000, 100}, .initializer = {.kind = Initializer::Kind::kNormal, .std = std}};
}

TEST(Initialize, NormalHasItsMoments) {
  std::vector<float> values(100000);
  initialize(normal("w", 0.02), 42, 0, values);
  double sum = 0, squares = 0, fourth = 0;
  for (float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
    fourth += std::pow(static_cast<double>(v), 4);
  }
  const double n = 100000, variance = squares / n;
  EXPECT_NEAR(sum / n, 0, 4 * 0.02 / std::sqrt(n));                     // four standard errors of the mean
  EXPECT_NEAR(variance / (0.02 * 0.02), 1, 4 * std::sqrt(2 / n));       // and of the variance
  EXPECT_NEAR(fourth / n / (variance * variance), 3, 0.15);             // kurtosis of a normal
}

TEST(Initialize, NormalHasItsDistributionFunctionInLayersAndTail) {
  constexpr double kCount = 1000000;
  std::vector<float> values(static_cast<size_t>(kCount));
  initialize(normal("w", 1), 42, 0, values);
  // 3.4426 is where the base layer's tail begins.
  for (double limit : {-4.0, -3.4426, -2.0, -0.5, 0.0, 0.25, 1.0, 3.0, 3.4426, 3.8}) {
    const double expected = 0.5 * std::erfc(-limit / std::sqrt(2.0));
    const auto below =
        static_cast<double>(std::count_if(values.begin(), values.end(), [&](float v) { return v < limit; }));
    EXPECT_NEAR(below / kCount, expected, 4 * std::sqrt(expected * (1 - expected) / kCount)) << limit;
  }
}

TEST(Initialize, PiecesAreTheWhole) {
  std::vector<float> whole(1000), pieces(1000);
  initialize(normal("w", 1), 7, 0, whole);
  for (int64_t first = 0; first < 1000;) {
    const int64_t size = std::min<int64_t>(1 + first % 37, 1000 - first);
    initialize(normal("w", 1), 7, first, std::span(pieces.data() + first, static_cast<size_t>(size)));
    first += size;
  }
  EXPECT_EQ(whole, pieces);
}

TEST(Initialize, NameAndSeedMakeDifferentStreams) {
  std::vector<float> a(100), b(100), c(100);
  initialize(normal("w", 1), 7, 0, a);
  initialize(normal("v", 1), 7, 0, b);
  initialize(normal("w", 1), 8, 0, c);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

TEST(Initialize, ZerosAndOnes) {
  std::vector<float> values(3, 5.0f);
  initialize({.name = "b", .shape = {3}, .initializer = {.kind = Initializer::Kind::kZeros}}, 1, 0, values);
  EXPECT_EQ(values, (std::vector<float>{0, 0, 0}));
  initialize({.name = "n", .shape = {3}, .initializer = {.kind = Initializer::Kind::kOnes}}, 1, 0, values);
  EXPECT_EQ(values, (std::vector<float>{1, 1, 1}));
}

}  // namespace
}  // namespace snug
