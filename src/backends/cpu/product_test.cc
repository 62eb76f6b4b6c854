#include <gtest/gtest.h>

#include "backends/cpu/onednn.h"
#include "backends/cpu/test_operation.h"

namespace snug::cpu {
namespace {

struct ProductCase {
  DType activation, weight;
  std::string orientation;
  int64_t rows, in, out;
  bool bias;
};

void PrintTo(const ProductCase& c, std::ostream* to) {
  *to << dtype_name(c.activation) << "_" << c.orientation << "_" << c.rows << "x" << c.in << "x" << c.out
      << (c.bias ? "_bias" : "");
}

Shape weight_shape(const ProductCase& c) {
  return c.orientation == "oi" ? Shape{c.out, c.in} : Shape{c.in, c.out};
}

class Products : public testing::TestWithParam<ProductCase> {
 protected:
  const ProductCase& c = GetParam();
  TestRun fast{choose_dispatch(2), "onednn"};
  Attributes attributes{{"weight", c.orientation},
                        {"bias", int64_t{c.bias}},
                        {"approximate", std::string("tanh")},
                        {"accumulate", int64_t{1}}};
  TestTensor x = TestTensor::random({c.activation, {1, c.rows, c.in}}, 1);
  TestTensor w =
      TestTensor::random({c.weight, weight_shape(c)}, 2, 1.0 / std::sqrt(static_cast<double>(c.in)));
  TestTensor b = TestTensor::random({c.weight, {c.out}}, 3);
  TestTensor d_y = TestTensor::random({c.activation, {1, c.rows, c.out}}, 4);
  TestTensor residual = TestTensor::random({c.activation, {1, c.rows, c.out}}, 5);

  double tolerance() const { return c.activation == DType::kBF16 ? 8e-3 : 2e-5; }
  std::vector<const TestTensor*> linear_inputs() const {
    return c.bias ? std::vector<const TestTensor*>{&x, &w, &b} : std::vector<const TestTensor*>{&x, &w};
  }
  TestTensor linear() const {
    TestTensor y({c.activation, {1, c.rows, c.out}});
    run_operation("linear", attributes, linear_inputs(), {&y}, fast);
    return y;
  }
};

TEST_P(Products, LinearIsTheSumOfProducts) {
  const std::vector<double> y = linear().values(), xs = x.values(), ws = w.values(), bs = b.values();
  std::vector<double> expected(y.size());
  for (int64_t row = 0; row < c.rows; ++row)
    for (int64_t o = 0; o < c.out; ++o) {
      double sum = c.bias ? bs[static_cast<size_t>(o)] : 0.0;
      for (int64_t i = 0; i < c.in; ++i)
        sum += xs[static_cast<size_t>(row * c.in + i)] *
               ws[static_cast<size_t>(c.orientation == "oi" ? o * c.in + i : i * c.out + o)];
      expected[static_cast<size_t>(row * c.out + o)] = sum;
    }
  EXPECT_LT(largest_difference(y, expected), tolerance());
}

TEST_P(Products, Float32OutputIsNotRounded) {
  TestTensor y({DType::kF32, {1, c.rows, c.out}});
  Attributes wide = attributes;
  wide.set("out", std::string("f32"));
  run_operation("linear", wide, linear_inputs(), {&y}, fast);
  TestTensor reference(y.type());
  run_operation("linear", wide, linear_inputs(), {&reference}, {fast.dispatch, "reference"});
  EXPECT_LT(largest_difference(y.values(), reference.values()), 2e-5);
}

TEST_P(Products, LinearGeluHasTheBitsOfLinearThenGelu) {
  const TestTensor u = linear();
  TestTensor h(u.type()), fused_u(u.type()), fused_h(u.type());
  run_operation("gelu", attributes, {&u}, {&h}, {fast.dispatch});
  run_operation("linear_gelu", attributes, linear_inputs(), {&fused_u, &fused_h}, fast);
  EXPECT_TRUE(fused_u.same_bits(u));
  EXPECT_TRUE(fused_h.same_bits(h));
}

TEST_P(Products, LinearAddHasTheBitsOfLinearThenAdd) {
  const TestTensor product = linear();
  TestTensor y(product.type()), fused(product.type());
  run_operation("add", attributes, {&residual, &product}, {&y}, {fast.dispatch});
  std::vector<const TestTensor*> inputs = linear_inputs();
  inputs.push_back(&residual);
  run_operation("linear_add", attributes, inputs, {&fused}, fast);
  EXPECT_TRUE(fused.same_bits(y));

  const TestTensor in_place = residual.copy();
  inputs.back() = &in_place;
  run_operation("linear_add", attributes, inputs, {&in_place}, fast);
  EXPECT_TRUE(in_place.same_bits(y)) << "y stored over the residual";
}

TEST_P(Products, InputGradientIsTheTransposedProduct) {
  TestTensor d_x({c.activation, {1, c.rows, c.in}});
  run_operation("linear_dx", attributes, {&d_y, &w}, {&d_x}, fast);
  const std::vector<double> ds = d_y.values(), ws = w.values();
  std::vector<double> expected(d_x.values().size());
  for (int64_t row = 0; row < c.rows; ++row)
    for (int64_t o = 0; o < c.out; ++o)
      for (int64_t i = 0; i < c.in; ++i)
        expected[static_cast<size_t>(row * c.in + i)] +=
            ds[static_cast<size_t>(row * c.out + o)] *
            ws[static_cast<size_t>(c.orientation == "oi" ? o * c.in + i : i * c.out + o)];
  EXPECT_LT(largest_difference(d_x.values(), expected), tolerance());
}

TEST_P(Products, WeightGradientAddsUnlessItOverwrites) {
  const TestTensor d_w = TestTensor::random({DType::kF32, weight_shape(c)}, 6);
  const std::vector<double> before = d_w.values(), xs = x.values(), ds = d_y.values();
  std::vector<double> product(before.size()), sum(before.size());
  for (int64_t row = 0; row < c.rows; ++row)
    for (int64_t o = 0; o < c.out; ++o)
      for (int64_t i = 0; i < c.in; ++i)
        product[static_cast<size_t>(c.orientation == "oi" ? o * c.in + i : i * c.out + o)] +=
            xs[static_cast<size_t>(row * c.in + i)] * ds[static_cast<size_t>(row * c.out + o)];
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = before[i] + product[i];
  run_operation("linear_dweight", attributes, {&x, &d_y, &d_w}, {&d_w}, fast);
  EXPECT_LT(largest_difference(d_w.values(), sum), 1e-4);
  run_operation("linear_dweight", attributes, {&x, &d_y, &d_w}, {&d_w}, {fast.dispatch, "onednn", true});
  EXPECT_LT(largest_difference(d_w.values(), product), 1e-4);
}

TEST_P(Products, AgreeWithTheReference) {
  const TestTensor y = linear();
  TestTensor reference(y.type());
  run_operation("linear", attributes, linear_inputs(), {&reference}, {fast.dispatch, "reference"});
  EXPECT_LT(largest_difference(y.values(), reference.values()), tolerance());
}

TEST_P(Products, RepeatTheirBitsForEveryNumberOfThreads) {
  for (int threads : {1, 2, 3}) {
    fast.dispatch.threads = threads;
    const TestTensor first = linear();
    EXPECT_TRUE(linear().same_bits(first)) << threads << " threads";
  }
}

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
INSTANTIATE_TEST_SUITE_P(Shapes, Products,
                         testing::Values(ProductCase{kF32, kF32, "oi", 1, 1, 1, true},
                                         ProductCase{kF32, kF32, "oi", 7, 33, 65, false},
                                         ProductCase{kF32, kF32, "io", 519, 40, 24,
                                                     true},  // a full panel and 7 rows
                                         ProductCase{kF32, kF32, "oi", 1024, 64, 96, true},  // two panels
                                         ProductCase{kBF16, kBF16, "oi", 3, 17, 9, true},
                                         ProductCase{kBF16, kBF16, "io", 519, 40, 24, false},
                                         ProductCase{kBF16, kBF16, "oi", 520, 64, 96, true}));

// The weight has more than one widened column panel: 8 Mi elements / 132000 = 64 columns each, the last
// of 36.
TEST(ProductPanels, AWideBf16WeightIsWidenedInParts) {
  constexpr int64_t kIn = 132000, kOut = 80;
  const Attributes oi{{"weight", std::string("oi")}}, io{{"weight", std::string("io")}};
  const TestRun fast{choose_dispatch(2), "onednn"};
  const TestTensor x = TestTensor::random({kBF16, {2, kIn}}, 1),
                   w = TestTensor::random({kBF16, {kOut, kIn}}, 2, 0.003);
  TestTensor w_io({kBF16, {kIn, kOut}}), y({kF32, {2, kOut}}), y_io({kF32, {2, kOut}});
  for (int64_t o = 0; o < kOut; ++o)
    for (int64_t i = 0; i < kIn; ++i)
      w_io.operand().as<BFloat16>()[i * kOut + o] = w.operand().as<BFloat16>()[o * kIn + i];
  run_operation("linear", oi, {&x, &w}, {&y}, fast);
  run_operation("linear", io, {&x, &w_io}, {&y_io}, fast);
  std::vector<double> expected(2 * kOut);
  const std::vector<double> xs = x.values(), ws = w.values();
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t o = 0; o < kOut; ++o)
      for (int64_t i = 0; i < kIn; ++i)
        expected[static_cast<size_t>(row * kOut + o)] +=
            xs[static_cast<size_t>(row * kIn + i)] * ws[static_cast<size_t>(o * kIn + i)];
  EXPECT_LT(largest_difference(y.values(), expected), 1e-4);
  EXPECT_LT(largest_difference(y_io.values(), expected), 1e-4);
}

TEST(ProductRefusals, SayWhy) {
  const Attributes attributes{{"weight", std::string("oi")}};
  const Dispatch avx2{CpuClass::kAvx2, 1, "for this test"};
  const std::vector<OperandType> half{{kBF16, {8, 4}}, {kBF16, {2, 4}}}, y{{kBF16, {8, 2}}};
  const OpQuery query{"linear", half, y, attributes};
  EXPECT_EQ(pick_kernel(query, avx2).implementation, "onednn");
  try {
    pick_kernel(query, avx2, "onednn_bf16");
    FAIL() << "accepted";
  } catch (const InternalError& error) {
    EXPECT_STREQ(
        error.what(),
        "linear: no onednn_bf16 kernel accepts: onednn_bf16: bf16 products need a processor of class "
        "avx512_bf16; this run is avx2 (for this test)");
  }
  const std::vector<OperandType> wide{{DType::kF64, {8, 4}}, {DType::kF64, {2, 4}}},
      wide_y{{DType::kF64, {8, 2}}};
  EXPECT_EQ(pick_kernel({"linear", wide, wide_y, attributes}, avx2).implementation, "reference");
}

// The native bf16 kernel's machinery, with f32 where this processor cannot multiply bf16.
TEST(Matmul, MultipliesAndAccumulatesWithScratchOfTheCaller) {
  constexpr int64_t kM = 5, kN = 7, kK = 9, kStride = 8;
  constexpr int kThreads = 2;
  const TestTensor a = TestTensor::random({kF32, {kK, kStride}}, 1), b = TestTensor::random({kF32, {kN, kK}}, 2);
  const TestTensor c = TestTensor::random({kF32, {kM, kN}}, 3);
  const std::vector<double> as = a.values(), bs = b.values(), before = c.values();
  MatmulShape shape{kM, kN, kK, true, true, kF32, kF32, kF32, false, kStride};
  for (bool accumulate : {true, false}) {
    shape.accumulate = accumulate;
    ASSERT_EQ(Matmul::refusal(shape), std::nullopt);
    const TestTensor scratch(OperandType{DType::kU8, Shape{Matmul::scratch_bytes(shape, kThreads).value}});
    omp_set_num_threads(kThreads);
    Matmul(shape, kThreads).run(a.data(), b.data(), c.data(), scratch.data());
    EXPECT_TRUE(scratch.guards_intact());
    std::vector<double> expected(kM * kN);
    for (int64_t m = 0; m < kM; ++m)
      for (int64_t n = 0; n < kN; ++n) {
        double sum = accumulate ? before[static_cast<size_t>(m * kN + n)] : 0.0;
        for (int64_t k = 0; k < kK; ++k)
          sum += as[static_cast<size_t>(k * kStride + m)] * bs[static_cast<size_t>(n * kK + k)];
        expected[static_cast<size_t>(m * kN + n)] = sum;
      }
    EXPECT_LT(largest_difference(c.values(), expected), 1e-5);
  }
}

TEST(Matmul, RunsBf16OrSaysThatThisProcessorCannot) {
  const MatmulShape shape{64, 64, 64, false, true, kBF16, kBF16, kF32, false};
  const bool native = choose_dispatch(1).native_bf16_products();
  const std::optional<std::string> refusal = Matmul::refusal(shape);
  EXPECT_EQ(refusal.has_value(), !native);
  if (refusal) {
    EXPECT_NE(refusal->find("oneDNN has no f32 product of bf16 and bf16 on this processor"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace snug::cpu
