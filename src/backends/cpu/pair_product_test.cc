#include "backends/cpu/pair_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "backends/cpu/bfloat16.h"
#include "backends/cpu/onednn.h"
#include "base/bytes.h"

namespace snug::cpu {
namespace {

struct ProductCase {
  int64_t rows, columns, pairs;
};

void PrintTo(const ProductCase& c, std::ostream* to) {
  *to << c.rows << "x" << c.columns << "x" << 2 * c.pairs;
}

Bf16Pair pair_of(BFloat16 first, BFloat16 second) {
  return first.bits | static_cast<Bf16Pair>(second.bits) << 16;
}

class PairProducts : public testing::TestWithParam<ProductCase> {
 protected:
  static constexpr float kUntouched = 1234.5f;

  const ProductCase& c = GetParam();
  const int64_t b_stride = round_up(c.columns, kPairColumns) + 16,
                c_stride = round_up(c.columns, kPairColumns) + 32;
  std::mt19937 engine{7};
  std::vector<BFloat16> left = random(c.rows * 2 * c.pairs), right = random(2 * c.pairs * c.columns);

  void SetUp() override {
    if (const auto refusal = bf16_product_refusal(choose_dispatch(1))) GTEST_SKIP() << *refusal;
  }

  std::vector<BFloat16> random(int64_t elements) {
    std::normal_distribution<float> normal;
    std::vector<BFloat16> values;
    for (int64_t i = 0; i < elements; ++i) values.push_back(narrow_nearest_even(normal(engine)));
    return values;
  }
  BFloat16 a(int64_t row, int64_t k) const { return left[static_cast<size_t>(row * 2 * c.pairs + k)]; }
  BFloat16 b(int64_t k, int64_t column) const { return right[static_cast<size_t>(k * c.columns + column)]; }

  std::vector<Bf16Pair> pairs_of_left(bool by_pair) const {
    std::vector<Bf16Pair> pairs(static_cast<size_t>(c.rows * c.pairs));
    for (int64_t r = 0; r < c.rows; ++r)
      for (int64_t p = 0; p < c.pairs; ++p)
        pairs[static_cast<size_t>(by_pair ? p * c.rows + r : r * c.pairs + p)] =
            pair_of(a(r, 2 * p), a(r, 2 * p + 1));
    return pairs;
  }
  std::vector<Bf16Pair> pairs_of_right() const {
    std::vector<Bf16Pair> pairs(static_cast<size_t>(c.pairs * b_stride));
    for (int64_t p = 0; p < c.pairs; ++p)
      for (int64_t n = 0; n < c.columns; ++n)
        pairs[static_cast<size_t>(p * b_stride + n)] = pair_of(b(2 * p, n), b(2 * p + 1, n));
    return pairs;
  }
  // (rows + 1, c_stride), of which the product is a part; it begins as `before`.
  std::vector<float> multiply(bool by_pair, bool adds, float before) const {
    const std::vector<Bf16Pair> a_pairs = pairs_of_left(by_pair), b_pairs = pairs_of_right();
    std::vector<float> product(static_cast<size_t>((c.rows + 1) * c_stride), kUntouched);
    for (int64_t r = 0; r < c.rows; ++r)
      std::fill_n(product.begin() + r * c_stride, round_up(c.columns, kPairColumns), before);
    const LeftPairs a_view =
        by_pair ? LeftPairs{a_pairs.data(), 1, c.rows} : LeftPairs{a_pairs.data(), c.pairs, 1};
    multiply_pairs(c.rows, c.columns, c.pairs, a_view, b_pairs.data(), b_stride, adds, product.data(),
                   c_stride);
    return product;
  }
};

TEST_P(PairProducts, AreThePlainSums) {
  const float before = 3.0f;
  const std::vector<float> plain = multiply(false, false, before), adding = multiply(false, true, before);
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t n = 0; n < c.columns; ++n) {
      double sum = 0, size = 1;
      for (int64_t k = 0; k < 2 * c.pairs; ++k) {
        const double term = double{widen(a(r, k))} * double{widen(b(k, n))};
        sum += term;
        size += std::abs(term);
      }
      const auto at = static_cast<size_t>(r * c_stride + n);
      EXPECT_NEAR(plain[at], sum, 1e-6 * size) << "row " << r << ", column " << n;
      EXPECT_NEAR(adding[at], sum + double{before}, 1e-6 * (size + 3)) << "row " << r << ", column " << n;
    }
}

TEST_P(PairProducts, KeepToTheirRowsAndWholeVectors) {
  const std::vector<float> product = multiply(false, false, 0.0f);
  for (int64_t r = 0; r <= c.rows; ++r)
    for (int64_t n = r < c.rows ? round_up(c.columns, kPairColumns) : 0; n < c_stride; ++n)
      EXPECT_EQ(product[static_cast<size_t>(r * c_stride + n)], kUntouched)
          << "row " << r << ", column " << n;
}

// An element's bits depend on its row and column alone, however the left pairs lie and whatever is multiplied beside it.
TEST_P(PairProducts, HaveTheSameBitsHoweverTheyAreCut) {
  const std::vector<float> whole = multiply(false, false, 0.0f);
  EXPECT_EQ(multiply(true, false, 0.0f), whole);
  const std::vector<Bf16Pair> a_pairs = pairs_of_left(false), b_pairs = pairs_of_right();
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t n = 0; n < c.columns; n += kPairColumns) {
      std::array<float, kPairColumns> alone{};
      multiply_pairs(1, std::min(kPairColumns, c.columns - n), c.pairs, {a_pairs.data() + r * c.pairs, 0, 1},
                     b_pairs.data() + n, b_stride, false, alone.data(), 0);
      for (int64_t i = 0; i < std::min(kPairColumns, c.columns - n); ++i)
        EXPECT_EQ(alone[static_cast<size_t>(i)], whole[static_cast<size_t>(r * c_stride + n + i)])
            << "row " << r << ", column " << n + i;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PairProducts,
                         testing::Values(ProductCase{1, 1, 1}, ProductCase{2, 16, 3}, ProductCase{3, 20, 8},
                                         ProductCase{4, 48, 5}, ProductCase{7, 64, 32},
                                         ProductCase{13, 130, 9}, ProductCase{128, 96, 32}));

}  // namespace
}  // namespace snug::cpu
