#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "backends/cpu/onednn.h"
#include "backends/cpu/test_operation.h"

namespace snug::cpu {
namespace {

struct AttentionCase {
  DType dtype;
  bool fused;
  int64_t samples, positions, heads, kv_heads, head_dim;
  int64_t document;  // length of each document but the first, which is half as long; 0: one document
  double dropout;
  std::string_view kernel = "blocked";
};

// What keeps this processor from running a kernel.
std::optional<std::string> kernel_refusal(std::string_view kernel, const Dispatch& dispatch) {
  return kernel == "blocked_bf16" ? bf16_product_refusal(dispatch) : std::nullopt;
}

void PrintTo(const AttentionCase& c, std::ostream* to) {
  *to << dtype_name(c.dtype) << (c.fused ? "_qkv" : "") << "_b" << c.samples << "_t" << c.positions << "_h"
      << c.heads << "_kv" << c.kv_heads << "_d" << c.head_dim << "_doc" << c.document << "_drop" << c.dropout
      << "_" << c.kernel;
}

class AttentionKernels : public testing::TestWithParam<AttentionCase> {
 protected:
  const AttentionCase& c = GetParam();
  const int64_t width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  Dispatch dispatch = choose_dispatch(2);

  void SetUp() override {
    if (const auto refusal = kernel_refusal(c.kernel, dispatch)) GTEST_SKIP() << *refusal;
  }

  Attributes attributes{{"heads", c.heads},
                        {"kv_heads", c.kv_heads},
                        {"scale", 1.0 / std::sqrt(double(c.head_dim))},
                        {"dropout", c.dropout},
                        {"stream", int64_t{-7321}}};
  std::vector<TestTensor> qkv = make_qkv();
  TestTensor starts = make_starts();
  TestTensor randomness = make_randomness();
  TestTensor d_y = TestTensor::random({c.dtype, {c.samples, c.positions, width}}, 8);

  std::vector<TestTensor> make_qkv() const {
    std::vector<TestTensor> tensors;
    if (c.fused)
      tensors.push_back(TestTensor::random({c.dtype, {c.samples, c.positions, width + 2 * kv_width}}, 1));
    else
      for (int64_t columns : {width, kv_width, kv_width})
        tensors.push_back(TestTensor::random({c.dtype, {c.samples, c.positions, columns}},
                                             1 + static_cast<uint32_t>(tensors.size())));
    return tensors;
  }
  TestTensor make_starts() const {
    std::vector<double> values;
    for (int64_t b = 0; b < c.samples; ++b) {
      int64_t start = 0, length = c.document / 2 + b;
      for (int64_t t = 0; t < c.positions; ++t) {
        if (c.document > 0 && t - start >= length) start = t, length = c.document;
        values.push_back(static_cast<double>(start));
      }
    }
    return TestTensor::of({DType::kI32, {c.samples, c.positions}}, values);
  }

  TestTensor make_randomness() const {
    std::vector<double> words;
    for (int64_t i = 0; i < 4 * c.samples; ++i) words.push_back(static_cast<double>(i * 1000003 + 17));
    return TestTensor::of({DType::kU32, {c.samples, 4}}, words);
  }

  struct Forward {
    TestTensor y, lse;
  };
  Forward forward(const TestRun& how) const {
    Forward result{TestTensor({c.dtype, {c.samples, c.positions, width}}),
                   TestTensor({DType::kF32, {c.samples, c.heads, c.positions}})};
    std::vector<const TestTensor*> inputs;
    for (const TestTensor& tensor : qkv) inputs.push_back(&tensor);
    inputs.push_back(&starts);
    if (c.dropout > 0) inputs.push_back(&randomness);
    run_operation(c.fused ? "attention_qkv" : "attention", attributes, inputs, {&result.y, &result.lse}, how);
    return result;
  }
  std::vector<TestTensor> backward(const Forward& saved, const TestRun& how) const {
    std::vector<TestTensor> gradients;
    std::vector<const TestTensor*> inputs{&d_y}, outputs;
    for (const TestTensor& tensor : qkv) {
      inputs.push_back(&tensor);
      gradients.emplace_back(tensor.type());
    }
    for (const TestTensor& tensor : gradients) outputs.push_back(&tensor);
    for (const TestTensor* tensor : {&saved.y, &saved.lse, &starts}) inputs.push_back(tensor);
    if (c.dropout > 0) inputs.push_back(&randomness);
    run_operation(c.fused ? "attention_qkv_backward" : "attention_backward", attributes, inputs, outputs,
                  how);
    return gradients;
  }
  double tolerance() const { return c.dtype == DType::kBF16 ? 8e-3 : 1e-5; }
};

TEST_P(AttentionKernels, ForwardIsTheReferences) {
  const Forward fast = forward({dispatch, c.kernel}), plain = forward({dispatch, "reference"});
  EXPECT_LT(largest_difference(fast.y.values(), plain.y.values()), tolerance());
  EXPECT_LT(largest_difference(fast.lse.values(), plain.lse.values()), 1e-5);
}

TEST_P(AttentionKernels, BackwardIsTheReferences) {
  const Forward saved = forward({dispatch, "reference"});
  const std::vector<TestTensor> fast = backward(saved, {dispatch, c.kernel}),
                                plain = backward(saved, {dispatch, "reference"});
  for (size_t i = 0; i < fast.size(); ++i)
    EXPECT_LT(largest_difference(fast[i].values(), plain[i].values()), 2 * tolerance()) << "gradient " << i;
}

TEST_P(AttentionKernels, BitsDoNotDependOnThreadsOrRepetition) {
  const Forward one = forward({choose_dispatch(1), c.kernel});
  const std::vector<TestTensor> gradients = backward(one, {choose_dispatch(1), c.kernel});
  for (int threads : {1, 2, 3}) {
    const Dispatch many = choose_dispatch(threads);
    const Forward again = forward({many, c.kernel});
    EXPECT_TRUE(again.y.same_bits(one.y)) << threads << " threads";
    EXPECT_TRUE(again.lse.same_bits(one.lse)) << threads << " threads";
    const std::vector<TestTensor> repeated = backward(one, {many, c.kernel});
    for (size_t i = 0; i < repeated.size(); ++i)
      EXPECT_TRUE(repeated[i].same_bits(gradients[i])) << threads << " threads, gradient " << i;
  }
}

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionKernels,
    testing::Values(AttentionCase{kF32, false, 1, 1, 1, 1, 16, 0, 0},
                    AttentionCase{kF32, true, 2, 33, 2, 2, 16, 0, 0},
                    AttentionCase{kF32, true, 1, 128, 2, 2, 64, 0, 0},
                    AttentionCase{kF32, false, 2, 419, 4, 2, 32, 0, 0},   // ragged, grouped
                    AttentionCase{kF32, true, 2, 400, 2, 1, 20, 90, 0},   // documents
                    AttentionCase{kF32, false, 1, 700, 1, 1, 256, 0, 0},  // three key blocks
                    AttentionCase{kF32, false, 1, 301, 2, 1, 16, 77, 0.25},
                    AttentionCase{kBF16, true, 2, 260, 3, 3, 64, 100, 0},
                    AttentionCase{kBF16, false, 1, 150, 4, 1, 48, 0, 0.1}));

INSTANTIATE_TEST_SUITE_P(
    Bf16, AttentionKernels,
    testing::Values(AttentionCase{kBF16, false, 1, 1, 1, 1, 16, 0, 0, "blocked_bf16"},
                    AttentionCase{kBF16, true, 2, 35, 2, 2, 16, 0, 0, "blocked_bf16"},  // an odd last key
                    AttentionCase{kBF16, true, 1, 128, 2, 2, 64, 0, 0, "blocked_bf16"},
                    AttentionCase{kBF16, false, 2, 419, 4, 2, 32, 0, 0, "blocked_bf16"},   // ragged, grouped
                    AttentionCase{kBF16, true, 2, 400, 2, 1, 20, 90, 0, "blocked_bf16"},   // documents
                    AttentionCase{kBF16, false, 1, 700, 1, 1, 256, 0, 0, "blocked_bf16"},  // three key blocks
                    AttentionCase{kBF16, true, 2, 260, 3, 3, 64, 100, 0, "blocked_bf16"},
                    AttentionCase{kBF16, false, 1, 301, 2, 1, 16, 77, 0.25, "blocked_bf16"},
                    AttentionCase{kBF16, false, 1, 150, 4, 1, 48, 0, 0.1, "blocked_bf16"}));

// The probabilities that the backward makes again are the forward's: each query's sum to 1, so that the sum of dV over keys is the sum of dY
// over queries. Scores lie in the hundreds, where one that was rounded otherwise would be off by a factor.
TEST(AttentionNumbers, ForwardAndBackwardMakeTheSameProbabilities) {
  constexpr int64_t kT = 300, kD = 64;
  const Dispatch dispatch = choose_dispatch(2);
  const Attributes attributes{
      {"heads", int64_t{1}}, {"kv_heads", int64_t{1}}, {"scale", 0.7}, {"dropout", 0.0}};
  const TestTensor starts = TestTensor::of({DType::kI32, {1, kT}}, std::vector<double>(kT));
  const TestTensor qkv = TestTensor::random({kBF16, {1, kT, 3 * kD}}, 1, 6.0),
                   d_y = TestTensor::random({kBF16, {1, kT, kD}}, 2);
  for (std::string_view kernel : {"blocked", "blocked_bf16"}) {
    if (kernel_refusal(kernel, dispatch)) continue;
    TestTensor y(d_y.type()), lse({kF32, {1, 1, kT}}), d_qkv(qkv.type());
    run_operation("attention_qkv", attributes, {&qkv, &starts}, {&y, &lse}, {dispatch, kernel});
    run_operation("attention_qkv_backward", attributes, {&d_y, &qkv, &y, &lse, &starts}, {&d_qkv},
                  {dispatch, kernel});
    const std::vector<double> given = d_y.values(), gradients = d_qkv.values();
    for (int64_t d = 0; d < kD; ++d) {
      double of_queries = 0, of_keys = 0, size = 0;
      for (int64_t t = 0; t < kT; ++t) {
        of_queries += given[static_cast<size_t>(t * kD + d)];
        of_keys += gradients[static_cast<size_t>(t * 3 * kD + 2 * kD + d)];
        size += std::abs(given[static_cast<size_t>(t * kD + d)]);
      }
      EXPECT_NEAR(of_keys, of_queries, 1e-3 * size) << kernel << ", column " << d;
    }
  }
}

// A processor's class decides, and every refusal says why.
TEST(AttentionKernelChoice, IsBf16WhereTheProcessorMultipliesIt) {
  const auto chosen = [](DType dtype, int64_t head_dim, CpuClass cpu_class) {
    const Attributes attributes{{"heads", int64_t{2}}, {"scale", 1.0}};
    const std::array inputs = {OperandType{dtype, {1, 8, 6 * head_dim}}, OperandType{DType::kI32, {1, 8}}},
                     outputs = {OperandType{dtype, {1, 8, 2 * head_dim}}, OperandType{kF32, {1, 2, 8}}};
    return pick_kernel({"attention_qkv", inputs, outputs, attributes}, {cpu_class, 1, "test"}).implementation;
  };
  EXPECT_EQ(chosen(kBF16, 64, CpuClass::kAvx2), "blocked");
  EXPECT_EQ(chosen(kBF16, 64, CpuClass::kAvx512), "blocked");
  const Dispatch own = choose_dispatch(1);
  if (const auto refusal = bf16_product_refusal(own)) GTEST_SKIP() << *refusal;
  EXPECT_EQ(chosen(kBF16, 64, own.cpu_class), "blocked_bf16");
  EXPECT_EQ(chosen(kBF16, 63, own.cpu_class), "blocked") << "an odd head";
  EXPECT_EQ(chosen(DType::kF16, 64, own.cpu_class), "blocked");
  EXPECT_EQ(chosen(kF32, 64, own.cpu_class), "blocked");
}

class AttentionTypes : public testing::TestWithParam<std::string_view> {
 protected:
  const std::string_view kernel = GetParam();
  const DType dtype = kernel == "blocked_bf16" ? kBF16 : kF32;
  const TestRun how{choose_dispatch(2), kernel};

  void SetUp() override {
    if (const auto refusal = kernel_refusal(kernel, how.dispatch)) GTEST_SKIP() << *refusal;
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, AttentionTypes, testing::Values("blocked", "blocked_bf16"));

// A key of another document must not reach a query, whatever it holds.
TEST_P(AttentionTypes, NothingCrossesDocuments) {
  constexpr int64_t kT = 300, kBoundary = 170, kD = 16;
  const Attributes attributes{
      {"heads", int64_t{1}}, {"kv_heads", int64_t{1}}, {"scale", 0.25}, {"dropout", 0.0}};
  std::vector<double> first(kT);
  for (int64_t t = kBoundary; t < kT; ++t) first[static_cast<size_t>(t)] = kBoundary;
  const TestTensor starts = TestTensor::of({DType::kI32, {1, kT}}, first);
  const TestTensor qkv = TestTensor::random({dtype, {1, kT, 3 * kD}}, 1);
  std::vector<double> values = qkv.values();
  for (size_t i = 0; i < kBoundary * 3 * kD; ++i) values[i] *= -50.0;
  const TestTensor other = TestTensor::of(qkv.type(), values);
  TestTensor y({dtype, {1, kT, kD}}), lse({kF32, {1, 1, kT}}), y_other(y.type()), lse_other(lse.type());
  run_operation("attention_qkv", attributes, {&qkv, &starts}, {&y, &lse}, how);
  run_operation("attention_qkv", attributes, {&other, &starts}, {&y_other, &lse_other}, how);
  const std::vector<double> a = y.values(), b = y_other.values();
  for (size_t i = kBoundary * kD; i < a.size(); ++i) EXPECT_EQ(a[i], b[i]) << "element " << i;
}

TEST_P(AttentionTypes, LargeScoresDoNotOverflowAndNaNsAreSeen) {
  constexpr int64_t kT = 40, kD = 16;
  const Attributes attributes{
      {"heads", int64_t{1}}, {"kv_heads", int64_t{1}}, {"scale", 1.0}, {"dropout", 0.0}};
  const TestTensor starts = TestTensor::of({DType::kI32, {1, kT}}, std::vector<double>(kT));
  const TestTensor qkv = TestTensor::random({dtype, {1, kT, 3 * kD}}, 1, 30.0);  // scores in the thousands
  TestTensor y({dtype, {1, kT, kD}}), lse({kF32, {1, 1, kT}}), reference(y.type()), reference_lse(lse.type());
  run_operation("attention_qkv", attributes, {&qkv, &starts}, {&y, &lse}, how);
  run_operation("attention_qkv", attributes, {&qkv, &starts}, {&reference, &reference_lse},
                {how.dispatch, "reference"});
  EXPECT_LT(largest_difference(y.values(), reference.values()), dtype == kBF16 ? 8e-3 : 2e-3);
  EXPECT_LT(largest_difference(lse.values(), reference_lse.values()), 1e-5);
  std::vector<double> values = qkv.values();
  values[kD + 3] = std::numeric_limits<double>::quiet_NaN();  // key 0, seen by everyone
  const TestTensor broken = TestTensor::of(qkv.type(), values);
  run_operation("attention_qkv", attributes, {&broken, &starts}, {&y, &lse}, how);
  for (double value : y.values()) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace snug::cpu
