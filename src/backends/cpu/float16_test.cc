// f16 conversions: exact values, and the vector forms against the scalar ones.
#include "backends/cpu/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/panel.h"

namespace snug::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool is_nan(uint16_t half) { return (half & 0x7FFF) > 0x7C00; }

TEST(Float16, RoundsToNearestEven) {
  struct Case {
    float value;
    uint16_t bits;
  };
  const Case kCases[] = {
      {0.0f, 0x0000},
      {-0.0f, 0x8000},
      {1.0f, 0x3C00},
      {-2.0f, 0xC000},
      {0.1f, 0x2E66},
      {1 + 0x1p-11f, 0x3C00},      // a tie: to the even neighbour below
      {1 + 3 * 0x1p-11f, 0x3C02},  // a tie: to the even neighbour above
      {1 + 0x1.8p-11f, 0x3C01},
      {2049, 0x6800},
      {2051, 0x6802},
      {65504, 0x7BFF},  // the largest
      {65519.996f, 0x7BFF},
      {65520, 0x7C00},  // half a unit above it: overflow
      {-65520, 0xFC00},
      {3e38f, 0x7C00},
      {kInfinity, 0x7C00},
      {-kInfinity, 0xFC00},
      {0x1p-14f, 0x0400},             // the smallest normal
      {0x1p-14f - 0x1p-25f, 0x0400},  // a tie of the largest subnormal with it
      {0x1p-14f - 0x1p-24f, 0x03FF},
      {0x1p-24f, 0x0001},  // the smallest subnormal
      {-0x1p-24f, 0x8001},
      {0x1p-25f, 0x0000},  // a tie with 0
      {std::nextafter(0x1p-25f, 1.0f), 0x0001},
      {3 * 0x1p-25f, 0x0002},
      {5 * 0x1p-25f, 0x0002},
      {1e-30f, 0x0000},
      {std::numeric_limits<float>::denorm_min(), 0x0000},
  };
  for (const Case& c : kCases) EXPECT_EQ(narrow_f16(c.value), c.bits) << c.value;
}

TEST(Float16, NansStayNansOfTheirSign) {
  const float quiet = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(narrow_f16(quiet), 0x7E00);
  EXPECT_EQ(narrow_f16(-quiet), 0xFE00);
  EXPECT_EQ(narrow_f16(std::bit_cast<float>(0x7F800001u)), 0x7E00) << "a NaN without upper payload bits";
  EXPECT_TRUE(std::isnan(widen_f16(0x7C01)));
  EXPECT_TRUE(std::isnan(widen_f16(0xFFFF)));
}

TEST(Float16, EveryHalfIsItsValueAndComesBack) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = widen_f16(half);
    if (is_nan(half)) {
      EXPECT_EQ(narrow_f16(value), half | 0x0200) << half;
      continue;
    }
    const int exponent = half >> 10 & 0x1F, mantissa = half & 0x3FF;
    const float magnitude = exponent == 31  ? kInfinity
                            : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                            : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    EXPECT_EQ(value, (half & 0x8000) != 0 ? -magnitude : magnitude) << half;
    EXPECT_EQ(narrow_f16(value), half);
  }
}

// Widening and narrowing rows are the processor's own conversions, which share nothing with the scalar ones.
TEST(Float16, VectorsHaveTheScalarsBits) {
  choose_dispatch(2);
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) halves.push_back(static_cast<uint16_t>(bits));
  halves.resize(halves.size() + 7);  // a ragged end
  const auto elements = static_cast<int64_t>(halves.size());
  std::vector<float> widened(halves.size());
  widen_rows({reinterpret_cast<const std::byte*>(halves.data()), DType::kF16, elements}, 1, elements,
             {reinterpret_cast<std::byte*>(widened.data()), DType::kF32, elements});
  for (size_t i = 0; i < halves.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(widened[i]), std::bit_cast<uint32_t>(widen_f16(halves[i]))) << i;

  // Every value, the middle between it and the next, and what lies on both sides of that.
  std::vector<float> values;
  for (size_t i = 0; i < 0x10000; ++i) {
    values.push_back(widened[i]);
    if (!std::isfinite(widened[i])) continue;
    const float next = widen_f16(static_cast<uint16_t>(i + 1));
    const float middle = std::isinf(next) ? std::copysign(65520.0f, next) : (widened[i] + next) / 2;
    values.insert(values.end(), {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 2 * middle)});
  }
  for (uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FC12345u, 0x7FFFFFFFu, 0x00000001u, 0x807FFFFFu})
    values.push_back(std::bit_cast<float>(bits));
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint16_t> narrowed(values.size());
  finish_rows({reinterpret_cast<const std::byte*>(values.data()), DType::kF32, count}, {}, {}, 1, count,
              {reinterpret_cast<std::byte*>(narrowed.data()), DType::kF16, count});
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(narrowed[i], narrow_f16(values[i])) << std::hexfloat << values[i];
}

}  // namespace
}  // namespace snug::cpu
