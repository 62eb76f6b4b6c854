#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "backends/cpu/test_operation.h"

namespace snug::cpu {
namespace {

struct AttentionCase {
  DType dtype;
  bool fused;
  int64_t samples, positions, heads, kv_heads, head_dim;
  int64_t document;  // length of each document but the first, which is half as long; 0: one document
  double dropout;
};

void PrintTo(const AttentionCase& c, std::ostream* to) {
  *to << dtype_name(c.dtype) << (c.fused ? "_qkv" : "") << "_b" << c.samples << "_t" << c.positions << "_h"
      << c.heads << "_kv" << c.kv_heads << "_d" << c.head_dim << "_doc" << c.document << "_drop" << c.dropout;
}

class AttentionKernels : public testing::TestWithParam<AttentionCase> {
 protected:
  const AttentionCase& c = GetParam();
  const int64_t width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  Dispatch dispatch = choose_dispatch(2);
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
  const Forward fast = forward({dispatch, "blocked"}), plain = forward({dispatch, "reference"});
  EXPECT_LT(largest_difference(fast.y.values(), plain.y.values()), tolerance());
  EXPECT_LT(largest_difference(fast.lse.values(), plain.lse.values()), 1e-5);
}

TEST_P(AttentionKernels, BackwardIsTheReferences) {
  const Forward saved = forward({dispatch, "reference"});
  const std::vector<TestTensor> fast = backward(saved, {dispatch, "blocked"}),
                                plain = backward(saved, {dispatch, "reference"});
  for (size_t i = 0; i < fast.size(); ++i)
    EXPECT_LT(largest_difference(fast[i].values(), plain[i].values()), 2 * tolerance()) << "gradient " << i;
}

TEST_P(AttentionKernels, BitsDoNotDependOnThreadsOrRepetition) {
  const Forward one = forward({choose_dispatch(1), "blocked"});
  const std::vector<TestTensor> gradients = backward(one, {choose_dispatch(1), "blocked"});
  for (int threads : {1, 2, 3}) {
    const Dispatch many = choose_dispatch(threads);
    const Forward again = forward({many, "blocked"});
    EXPECT_TRUE(again.y.same_bits(one.y)) << threads << " threads";
    EXPECT_TRUE(again.lse.same_bits(one.lse)) << threads << " threads";
    const std::vector<TestTensor> repeated = backward(one, {many, "blocked"});
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

// A key of another document must not reach a query, whatever it holds.
TEST(AttentionDocuments, NothingCrossesThem) {
  constexpr int64_t kT = 300, kBoundary = 170, kD = 16;
  const Attributes attributes{
      {"heads", int64_t{1}}, {"kv_heads", int64_t{1}}, {"scale", 0.25}, {"dropout", 0.0}};
  const TestRun how{choose_dispatch(2), "blocked"};
  std::vector<double> first(kT);
  for (int64_t t = kBoundary; t < kT; ++t) first[static_cast<size_t>(t)] = kBoundary;
  const TestTensor starts = TestTensor::of({DType::kI32, {1, kT}}, first);
  const TestTensor qkv = TestTensor::random({kF32, {1, kT, 3 * kD}}, 1);
  const TestTensor other = qkv.copy();
  for (int64_t i = 0; i < kBoundary * 3 * kD; ++i) other.operand().as<float>()[i] *= -50.0f;
  TestTensor y({kF32, {1, kT, kD}}), lse({kF32, {1, 1, kT}}), y_other(y.type()), lse_other(lse.type());
  run_operation("attention_qkv", attributes, {&qkv, &starts}, {&y, &lse}, how);
  run_operation("attention_qkv", attributes, {&other, &starts}, {&y_other, &lse_other}, how);
  const std::vector<double> a = y.values(), b = y_other.values();
  for (size_t i = kBoundary * kD; i < a.size(); ++i) EXPECT_EQ(a[i], b[i]) << "element " << i;
}

TEST(AttentionNumbers, LargeScoresDoNotOverflowAndNaNsAreSeen) {
  constexpr int64_t kT = 40, kD = 16;
  const Attributes attributes{
      {"heads", int64_t{1}}, {"kv_heads", int64_t{1}}, {"scale", 1.0}, {"dropout", 0.0}};
  const TestRun how{choose_dispatch(1), "blocked"};
  const TestTensor starts = TestTensor::of({DType::kI32, {1, kT}}, std::vector<double>(kT));
  const TestTensor qkv = TestTensor::random({kF32, {1, kT, 3 * kD}}, 1, 30.0);  // scores in the thousands
  TestTensor y({kF32, {1, kT, kD}}), lse({kF32, {1, 1, kT}}), reference(y.type()), reference_lse(lse.type());
  run_operation("attention_qkv", attributes, {&qkv, &starts}, {&y, &lse}, how);
  run_operation("attention_qkv", attributes, {&qkv, &starts}, {&reference, &reference_lse},
                {how.dispatch, "reference"});
  EXPECT_LT(largest_difference(y.values(), reference.values()), 2e-3);
  EXPECT_LT(largest_difference(lse.values(), reference_lse.values()), 1e-5);
  qkv.operand().as<float>()[kD + 3] = std::numeric_limits<float>::quiet_NaN();  // key 0, seen by everyone
  run_operation("attention_qkv", attributes, {&qkv, &starts}, {&y, &lse}, how);
  for (double value : y.values()) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace snug::cpu
