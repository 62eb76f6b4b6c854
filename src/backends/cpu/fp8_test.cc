// The formats by their published values, for every implementation. Larger inputs: conformance/cases_fp8.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "backends/cpu/fp8.h"
#include "backends/cpu/test_operation.h"

namespace snug::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Encoded {
  std::vector<double> codes, scales;
};

struct Implementation {
  std::string format, name;
};
void PrintTo(const Implementation& tested, std::ostream* stream) {
  *stream << tested.name << " " << tested.format;
}

class Fp8 : public testing::TestWithParam<Implementation> {
 protected:
  const Dispatch dispatch_ = choose_dispatch(2);

  Encoded encode(const std::vector<double>& x, int64_t block = 128) const {
    const auto elements = static_cast<int64_t>(x.size());
    const TestTensor input = TestTensor::of({DType::kF32, {elements}}, x);
    const TestTensor codes({DType::kU8, {elements}}), scales({DType::kF32, {ceil_div(elements, block)}});
    run_operation("fp8_encode", {{"block", block}, {"format", GetParam().format}}, {&input},
                  {&codes, &scales}, {dispatch_, GetParam().name});
    return {codes.values(), scales.values()};
  }
  std::vector<double> decode(const Encoded& encoded, DType type = DType::kF32, int64_t block = 128) const {
    const auto elements = static_cast<int64_t>(encoded.codes.size());
    const TestTensor codes = TestTensor::of({DType::kU8, {elements}}, encoded.codes);
    const TestTensor scales =
        TestTensor::of({DType::kF32, {static_cast<int64_t>(encoded.scales.size())}}, encoded.scales);
    const TestTensor y({type, {elements}});
    run_operation("fp8_decode",
                  {{"block", block}, {"format", GetParam().format}, {"out", std::string(dtype_name(type))}},
                  {&codes, &scales}, {&y}, {dispatch_, GetParam().name});
    return y.values();
  }
  bool is_e4m3() const { return GetParam().format == "e4m3"; }
  // All 256 codes at a scale of 1.
  std::vector<double> all_values() const {
    std::vector<double> codes(256);
    std::iota(codes.begin(), codes.end(), 0);
    return decode({codes, {1, 1}});
  }
  double largest() const { return is_e4m3() ? 448 : 57344; }
};

// Micikevicius et al. 2022, table 1: S.1111.110 = 1.75 · 2^8, S.0001.000 = 2^-6, S.0000.111 = 0.875 · 2^-6, S.0000.001 = 2^-9;
// S.11110.11 = 1.75 · 2^15, S.00001.00 = 2^-14, S.00000.11 = 0.75 · 2^-14, S.00000.01 = 2^-16.
TEST_P(Fp8, EveryCodeIsItsNumber) {
  const std::vector<double> values = all_values();
  const int digits = is_e4m3() ? 3 : 2, bias = is_e4m3() ? 7 : 15, mantissas = 1 << digits;
  const std::vector<std::pair<size_t, double>> published =
      is_e4m3() ? std::vector<std::pair<size_t, double>>{{0x7E, 448},
                                                         {0x08, 0x1p-6},
                                                         {0x07, 0.875 * 0x1p-6},
                                                         {0x01, 0x1p-9},
                                                         {0x38, 1}}
                : std::vector<std::pair<size_t, double>>{
                      {0x7B, 57344}, {0x04, 0x1p-14}, {0x03, 0.75 * 0x1p-14}, {0x01, 0x1p-16}, {0x3C, 1}};
  for (const auto& [code, value] : published) EXPECT_EQ(values[code], value) << code;
  for (int code = 0; code < 128; ++code) {
    const double value = values[static_cast<size_t>(code)],
                 negative = values[static_cast<size_t>(code) + 128];
    if (is_e4m3() ? code == 0x7F : code > 0x7C) {
      EXPECT_TRUE(std::isnan(value) && std::isnan(negative)) << code;
      continue;
    }
    const int exponent = code / mantissas, mantissa = code % mantissas;
    const double expected = code == 0x7C && !is_e4m3() ? kInfinity
                            : exponent == 0            ? std::ldexp(mantissa, 1 - bias - digits)
                                            : std::ldexp(mantissas + mantissa, exponent - bias - digits);
    EXPECT_EQ(value, expected) << code;
    EXPECT_EQ(negative, -expected) << code;
    EXPECT_EQ(std::signbit(negative), true) << code;
  }
}

TEST_P(Fp8, EncodingWhatWasDecodedIsTheIdentity) {
  std::vector<double> values = all_values();
  const Encoded again = encode(values);
  EXPECT_EQ(again.scales, (std::vector<double>{1, 1}));
  for (size_t code = 0; code < 256; ++code) {
    const bool is_nan = std::isnan(values[code]);
    EXPECT_EQ(again.codes[code],
              is_nan ? static_cast<double>((code & 0x80) | 0x7F) : static_cast<double>(code))
        << code;
  }
  // At other scales too, and of a type with fewer digits.
  for (const double scale : {0x1p-126, 0x1p-40, 0x1p7, 0x1p+100}) {
    Encoded codes = again;
    codes.scales = {scale, scale};
    const Encoded scaled = encode(decode(codes));
    EXPECT_EQ(scaled.codes, codes.codes) << scale;
    EXPECT_EQ(scaled.scales, codes.scales);
    if (scale > 0x1p-100) {
      EXPECT_EQ(encode(decode(codes, DType::kBF16)).codes, codes.codes) << scale;
    }
  }
}

TEST_P(Fp8, RoundsToNearestEven) {
  const std::vector<double> values = all_values();
  const size_t finite = is_e4m3() ? 0x7F : 0x7C;
  std::vector<double> x, expected;
  for (size_t code = 0; code + 1 < finite; ++code) {
    const double below = values[code], above = values[code + 1], middle = (below + above) / 2;
    const double even = static_cast<double>(code % 2 == 0 ? code : code + 1);
    const auto between = [&](double number) { return static_cast<float>(number); };
    for (const auto& [number, to] : std::vector<std::pair<double, double>>{
             {middle, even},
             {std::nextafter(between(middle), 0.0F), static_cast<double>(code)},
             {std::nextafter(between(middle), 1e9F), static_cast<double>(code + 1)}}) {
      x.push_back(number);
      expected.push_back(to);
      x.push_back(-number);
      expected.push_back(to + 128);
    }
  }
  // One block, whose scale is 1 because its largest number is the format's.
  x.push_back(largest());
  expected.push_back(static_cast<double>(finite - 1));
  const Encoded found = encode(x, static_cast<int64_t>(x.size()));
  EXPECT_EQ(found.scales, std::vector<double>{1});
  EXPECT_EQ(found.codes, expected);
}

TEST_P(Fp8, ScaleIsTheSmallestPowerOfTwoThatHoldsTheLargest) {
  const std::vector<std::pair<double, double>> cases = {
      {largest(), 1},         {std::nextafter(static_cast<float>(largest()), 1e9F), 2},
      {largest() / 2, 0.5},   {largest() * 4, 4},
      {0, 0x1p-126},          {0x1p-149, 0x1p-126},
      {-3 * largest() / 4, 1}};
  for (const auto& [number, scale] : cases) {
    const Encoded found = encode({0, number, number / 3});
    EXPECT_EQ(found.scales, std::vector<double>{scale}) << number;
    const std::vector<double> back = decode(found);
    const double step = is_e4m3() ? 0x1p-4 : 0x1p-3;  // half a unit of the last digit
    EXPECT_NEAR(back[1], number, std::abs(number) * step + 0x1p-136) << number;
    EXPECT_NEAR(back[2], static_cast<float>(number / 3), std::abs(number / 3) * step + 0x1p-136) << number;
  }
  // Each block has its own.
  std::vector<double> x(300, 1);
  x[200] = 1024 * largest();
  EXPECT_EQ(encode(x).scales,
            (std::vector<double>{is_e4m3() ? 0x1p-8 : 0x1p-15, 1024, is_e4m3() ? 0x1p-8 : 0x1p-15}));
}

// A number that is not finite stays so, and takes no digit from its neighbours.
TEST_P(Fp8, WhatIsNotFiniteStaysSo) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Encoded found = encode({kInfinity, 1, -kInfinity, nan, 448});
  EXPECT_EQ(found.scales, std::vector<double>{is_e4m3() ? 1 : 0x1p-7});
  EXPECT_EQ(found.codes[3], 0x7F);
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::vector<double> back = decode(found, type);
    EXPECT_FALSE(std::isfinite(back[0]) || std::isfinite(back[2]) || std::isfinite(back[3]));
    EXPECT_EQ(back[1], 1);
    EXPECT_EQ(back[4], 448);
    if (!is_e4m3()) {
      EXPECT_EQ(back[0], kInfinity);
      EXPECT_EQ(back[2], -kInfinity);
    }
  }
}

// Rounding up the largest number of a type gives that number, not infinity.
TEST_P(Fp8, DecodesWithinTheRangeOfTheType) {
  const double f32 = std::numeric_limits<float>::max(), bf16 = 0x1.FEp127;
  const Encoded found = encode({f32, -f32, 1});
  EXPECT_EQ(decode(found), (std::vector<double>{f32, -f32, 0}));
  EXPECT_EQ(decode(found, DType::kBF16), (std::vector<double>{bf16, -bf16, 0}));
  EXPECT_EQ(decode(found, DType::kF16), (std::vector<double>{65504, -65504, 0}));
}

INSTANTIATE_TEST_SUITE_P(Implementations, Fp8,
                         testing::Values(Implementation{"e4m3", "reference"},
                                         Implementation{"e5m2", "reference"},
                                         Implementation{"e4m3", "highway"},
                                         Implementation{"e5m2", "highway"}),
                         [](const auto& tested) { return tested.param.name + "_" + tested.param.format; });

}  // namespace
}  // namespace snug::cpu
