#include "base/checked.h"

#include <limits>

#include "base/testing.h"

namespace snug {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(Checked, ComputesInsideTheRange) {
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_sub(kMin + 1, 1), kMin);
  EXPECT_EQ(checked_mul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(checked_mul(0, kMax), 0);
}

TEST(Checked, RefusesOverflowWithBothOperands) {
  expect_user_error(ExitCode::kUsage, fmt::format("{} + 1 exceeds 64 bits", kMax),
                    [] { checked_add(kMax, 1); });
  expect_user_error(ExitCode::kUsage, fmt::format("{} - 1 exceeds 64 bits", kMin),
                    [] { checked_sub(kMin, 1); });
  expect_user_error(ExitCode::kUsage, "4294967296 * 4294967296 exceeds 64 bits",
                    [] { checked_mul(int64_t{1} << 32, int64_t{1} << 32); });
}

TEST(Checked, RoundsUp) {
  EXPECT_EQ(ceil_div(0, 8), 0);
  EXPECT_EQ(ceil_div(1, 8), 1);
  EXPECT_EQ(ceil_div(8, 8), 1);
  EXPECT_EQ(ceil_div(kMax, 2), kMax / 2 + 1);
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_EQ(round_up(128, 64), 128);
  expect_user_error(ExitCode::kUsage, "exceeds 64 bits", [] { round_up(kMax, 64); });
}

}  // namespace
}  // namespace snug
