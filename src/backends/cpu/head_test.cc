#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/onednn.h"
#include "backends/cpu/test_operation.h"

namespace snug::cpu {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kI32 = DType::kI32;

struct HeadCase {
  DType dtype;
  int64_t samples, positions, C, V, chunk;
  const char* kernel = "chunked";
};

void PrintTo(const HeadCase& c, std::ostream* to) {
  *to << dtype_name(c.dtype) << "_b" << c.samples << "_t" << c.positions << "_c" << c.C << "_v" << c.V
      << "_chunk" << c.chunk << "_" << c.kernel;
}

class HeadKernels : public testing::TestWithParam<HeadCase> {
 protected:
  const HeadCase& c = GetParam();
  TestRun fast{choose_dispatch(2), c.kernel}, plain{fast.dispatch, "reference"};
  Attributes attributes{{"chunk", c.chunk}, {"dweight", int64_t{1}}, {"accumulate", int64_t{1}}};
  TestTensor x = TestTensor::random({c.dtype, {c.samples, c.positions, c.C}}, 1);
  TestTensor w = TestTensor::random({c.dtype, {c.V, c.C}}, 2, 1.0 / std::sqrt(static_cast<double>(c.C)));
  TestTensor targets = make_targets();
  TestTensor inverse_tokens = TestTensor::of({kF32, {1}}, {1.0 / 37});

  // Every fifth row is ignored, and so is the whole second chunk.
  bool ignored(int64_t row) const { return row % 5 == 3 || row / c.chunk == 1; }
  TestTensor make_targets() const {
    std::vector<double> values;
    for (int64_t row = 0; row < c.samples * c.positions; ++row)
      values.push_back(ignored(row) ? -100.0 : static_cast<double>(row * 7919 % c.V));
    return TestTensor::of({kI32, {c.samples, c.positions}}, values);
  }
  void SetUp() override {
    if (std::string_view(c.kernel) != "chunked_bf16") return;
    if (const auto refusal = bf16_product_refusal(fast.dispatch)) GTEST_SKIP() << *refusal;
  }
  double tolerance() const { return c.dtype == kBF16 ? 8e-3 : 1e-5; }

  struct Gradient {
    TestTensor loss, d_x, d_w;
  };
  Gradient gradient(const TestRun& how) const {
    Gradient g{TestTensor({kF32, {1}}), TestTensor(x.type()), TestTensor::random({kF32, {c.V, c.C}}, 5)};
    run_operation("head_loss_gradient", attributes, {&x, &w, &targets, &inverse_tokens, &g.d_w},
                  {&g.loss, &g.d_x, &g.d_w}, how);
    return g;
  }
};

TEST_P(HeadKernels, LossIsTheReferences) {
  TestTensor loss({kF32, {1}}), expected({kF32, {1}});
  run_operation("head_loss", attributes, {&x, &w, &targets, &inverse_tokens}, {&loss}, fast);
  run_operation("head_loss", attributes, {&x, &w, &targets, &inverse_tokens}, {&expected}, plain);
  EXPECT_GT(expected.values()[0], 0.0);
  EXPECT_LT(largest_difference(loss.values(), expected.values()), 1e-5);
  EXPECT_TRUE(gradient(fast).loss.same_bits(loss)) << "evaluation and training see the same loss";
}

TEST_P(HeadKernels, GradientsAreTheReferencesAndAddUp) {
  const Gradient adding = gradient(fast), expected = gradient(plain);
  EXPECT_LT(largest_difference(adding.d_x.values(), expected.d_x.values()), tolerance());
  EXPECT_LT(largest_difference(adding.d_w.values(), expected.d_w.values()), 1e-5);
  TestRun over = fast, over_plain = plain;
  over.overwrite = over_plain.overwrite = true;
  EXPECT_LT(largest_difference(gradient(over).d_w.values(), gradient(over_plain).d_w.values()), 1e-5);
}

TEST_P(HeadKernels, IgnoredRowsGetExactlyZero) {
  const std::vector<double> d_x = gradient(fast).d_x.values();
  for (int64_t row = 0; row < c.samples * c.positions; ++row)
    for (int64_t i = 0; i < c.C; ++i) {
      const double value = d_x[static_cast<size_t>(row * c.C + i)];
      if (ignored(row)) {
        EXPECT_EQ(value, 0.0) << "row " << row;
      }
    }
}

TEST_P(HeadKernels, RepeatTheirBits) {
  const Gradient first = gradient(fast), again = gradient(fast);
  EXPECT_TRUE(first.loss.same_bits(again.loss));
  EXPECT_TRUE(first.d_x.same_bits(again.d_x));
  EXPECT_TRUE(first.d_w.same_bits(again.d_w));
}

TEST_P(HeadKernels, AgreeWithTheLossOfWholeLogits) {
  const TestTensor logits({kF32, {c.samples, c.positions, c.V}});
  TestTensor loss({kF32, {1}}), whole({kF32, {1}});
  const Attributes linear{{"weight", std::string("oi")}, {"out", std::string("f32")}};
  run_operation("linear", linear, {&x, &w}, {&logits}, {fast.dispatch});
  run_operation("cross_entropy", {}, {&logits, &targets, &inverse_tokens}, {&whole},
                {fast.dispatch, "highway"});
  run_operation("head_loss", attributes, {&x, &w, &targets, &inverse_tokens}, {&loss}, fast);
  EXPECT_LT(largest_difference(loss.values(), whole.values()), 1e-6);

  TestTensor d_logits(logits.type()), expected(logits.type());
  run_operation("cross_entropy_backward", {}, {&logits, &targets, &inverse_tokens}, {&expected}, plain);
  run_operation("cross_entropy_backward", {}, {&logits, &targets, &inverse_tokens}, {&d_logits},
                {fast.dispatch, "highway"});
  EXPECT_LT(largest_difference(d_logits.values(), expected.values()), 1e-6);
  run_operation("cross_entropy_backward", {}, {&logits, &targets, &inverse_tokens}, {&logits},
                {fast.dispatch, "highway"});
  EXPECT_TRUE(logits.same_bits(d_logits)) << "in place";
}

// What the operation's plain decomposition says: bf16 activations have logits' gradients in bf16.
TEST_P(HeadKernels, GradientsAreThoseOfStoredLogitGradients) {
  const TestTensor logits({kF32, {c.samples, c.positions, c.V}});
  run_operation("linear", {{"weight", std::string("oi")}, {"out", std::string("f32")}}, {&x, &w}, {&logits}, plain);
  TestTensor d_logits({c.dtype, logits.type().shape}), wide(logits.type()), d_x(x.type()),
      d_w({kF32, {c.V, c.C}});
  Attributes stored;
  if (c.dtype == kBF16) stored.set("out", "bf16");
  run_operation("cross_entropy_backward", stored, {&logits, &targets, &inverse_tokens}, {&d_logits}, plain);
  run_operation("cross_entropy_backward", {}, {&logits, &targets, &inverse_tokens}, {&wide}, plain);
  EXPECT_TRUE(d_logits.same_bits(TestTensor::of(d_logits.type(), wide.values())));
  const Attributes oi{{"weight", std::string("oi")}};
  run_operation("linear_dx", oi, {&d_logits, &w}, {&d_x}, plain);
  run_operation("linear_dweight", oi, {&x, &d_logits}, {&d_w}, plain);
  TestRun over = plain;
  over.overwrite = true;
  const Gradient expected = gradient(over);
  EXPECT_LT(largest_difference(expected.d_x.values(), d_x.values()), 1e-6);
  EXPECT_LT(largest_difference(expected.d_w.values(), d_w.values()), 1e-6);
}

TEST_P(HeadKernels, LastLogitsAreTheRowsOfOnePosition) {
  TestTensor logits({kF32, {c.samples, c.V}}), expected({kF32, {c.samples, c.V}});
  const TestTensor position = TestTensor::of({kI32, {1}}, {static_cast<double>(c.positions / 2)});
  run_operation("last_logits", {}, {&x, &w, &position}, {&logits}, {fast.dispatch, "highway"});
  run_operation("last_logits", {}, {&x, &w, &position}, {&expected}, plain);
  EXPECT_LT(largest_difference(logits.values(), expected.values()), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadKernels,
                         testing::Values(HeadCase{kF32, 1, 5, 8, 11, 2}, HeadCase{kF32, 2, 9, 33, 501, 4},
                                         HeadCase{kF32, 2, 20, 16, 64, 64},  // one chunk of all 40 rows
                                         HeadCase{kBF16, 1, 21, 40, 130, 8},
                         HeadCase{kBF16, 1, 21, 40, 130, 8, "chunked_bf16"},
                         HeadCase{kBF16, 2, 9, 33, 501, 4, "chunked_bf16"}));

// 4 Mi elements / 70000 → 64 tokens a widened weight panel, the last of 6.
TEST(Head, AWideBf16WeightIsWidenedInParts) {
  constexpr int64_t kC = 70000, kV = 70;
  const Attributes attributes{{"chunk", int64_t{1}}, {"dweight", int64_t{0}}, {"accumulate", int64_t{0}}};
  const TestTensor x = TestTensor::random({kBF16, {1, 2, kC}}, 1),
                   w = TestTensor::random({kBF16, {kV, kC}}, 2, 0.004),
                   targets = TestTensor::of({kI32, {1, 2}}, {65, 3}),
                   inverse_tokens = TestTensor::of({kF32, {1}}, {1});
  TestTensor loss({kF32, {1}}), d_x(x.type()), expected_loss({kF32, {1}}), expected_d_x(x.type());
  const Dispatch dispatch = choose_dispatch(2);
  run_operation("head_loss_gradient", attributes, {&x, &w, &targets, &inverse_tokens}, {&loss, &d_x},
                {dispatch, "chunked"});
  run_operation("head_loss_gradient", attributes, {&x, &w, &targets, &inverse_tokens},
                {&expected_loss, &expected_d_x}, {dispatch, "reference"});
  EXPECT_LT(largest_difference(loss.values(), expected_loss.values()), 1e-5);
  EXPECT_LT(largest_difference(d_x.values(), expected_d_x.values()), 8e-3);
}

TEST(Head, WithNothingSupervisedOverwritesWithZeros) {
  const TestRun run{choose_dispatch(1), "chunked", true};
  const TestTensor x = TestTensor::random({kF32, {1, 4, 8}}, 1), w = TestTensor::random({kF32, {10, 8}}, 2),
                   targets = TestTensor::of({kI32, {1, 4}}, {-100, -100, -100, -100}),
                   inverse_tokens = TestTensor::of({kF32, {1}}, {1});
  TestTensor loss({kF32, {1}}), d_x(x.type()), d_w = TestTensor::random(w.type(), 3);
  run_operation("head_loss_gradient",
                {{"chunk", int64_t{2}}, {"dweight", int64_t{1}}, {"accumulate", int64_t{1}}},
                {&x, &w, &targets, &inverse_tokens, &d_w}, {&loss, &d_x, &d_w}, run);
  EXPECT_EQ(loss.values(), std::vector<double>(1));
  EXPECT_EQ(d_x.values(), std::vector<double>(32));
  EXPECT_EQ(d_w.values(), std::vector<double>(80));
}

TEST(Head, ATargetOutsideTheVocabularyIsOurBug) {
  const TestRun run{choose_dispatch(1), "chunked"};
  const TestTensor x = TestTensor::random({kF32, {1, 1, 8}}, 1), w = TestTensor::random({kF32, {10, 8}}, 2),
                   targets = TestTensor::of({kI32, {1, 1}}, {10}),
                   inverse_tokens = TestTensor::of({kF32, {1}}, {1});
  TestTensor loss({kF32, {1}});
  EXPECT_THROW(
      run_operation("head_loss", {{"chunk", int64_t{1}}}, {&x, &w, &targets, &inverse_tokens}, {&loss}, run),
      InternalError);
}

}  // namespace
}  // namespace snug::cpu
