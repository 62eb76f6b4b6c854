#include "backends/cpu/cost_timer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <utility>

#include "base/errors.h"

namespace snug::cpu {
namespace {

constexpr CpuRates kRates{.product_flops_per_second = 100e9, .bytes_per_second = 10e9};

CostSample sample_of(std::string op, std::vector<OperandType> inputs, std::vector<OperandType> outputs,
                     const Attributes& attributes, double flops = 0) {
  return cost_sample({op, inputs, outputs, attributes}, {.flops = flops, .bytes = 1e6}, choose_dispatch(2),
                     kRates);
}

CostSample add_of(int64_t elements) {
  const OperandType type{DType::kF32, {1, 1, elements}};
  return sample_of("add", {type, type}, {type}, {});
}

// Every operation that a step of either family has, small; f32 with accumulators, and bf16.
std::vector<CostSample> all_kinds(DType a) {
  const int64_t B = 2, T = 8, C = 16, F = 24, V = 50, H = 2, D = 8;
  const auto x = [&](int64_t width) { return OperandType{a, {B, T, width}}; };
  const auto f32 = [](Shape shape) { return OperandType{DType::kF32, std::move(shape)}; };
  const OperandType index{DType::kI32, {B, T}}, random{DType::kU32, {B, 4}},
      row = f32({B, T}), lse = f32({B, H, T}), one = f32({1}), four = f32({4}), sum{DType::kF64, {1}},
      w{a, {C, F}}, bias{a, {F}}, norm{a, {C}}, table{a, {V, C}};
  const std::string io = "io", tanh = "tanh";
  const Attributes product{{"weight", io}, {"bias", int64_t{1}}}, gelu{{"approximate", tanh}},
      product_gelu{{"weight", io}, {"bias", int64_t{1}}, {"approximate", tanh}}, weight{{"weight", io}},
      adds{{"accumulate", int64_t{1}}}, eps{{"eps", 1e-5}}, rotary{{"heads", H}, {"inverse", int64_t{0}}},
      attention{{"heads", H}, {"kv_heads", H}, {"scale", 0.35}, {"dropout", 0.1}, {"stream", int64_t{7}}};
  const OperandType down{a, {F, C}};
  const Attributes mlp{
      {"activation", "gelu_tanh"}, {"weight", io}, {"bias", int64_t{1}}, {"chunk", int64_t{6}}};
  Attributes mlp_gradient = mlp;
  mlp_gradient.set("gradients", int64_t{31});
  const Attributes gated_gradient{{"activation", "swiglu"},
                                  {"weight", io},
                                  {"bias", int64_t{0}},
                                  {"chunk", int64_t{16}},
                                  {"gradients", int64_t{10}}};
  std::vector<CostSample> all = {
      sample_of("embedding", {index, table}, {x(C)}, {}),
      sample_of("add", {x(C), x(C)}, {x(C)}, {}),
      sample_of("linear", {x(C), w, bias}, {x(F)}, product),
      sample_of("linear_gelu", {x(C), w, bias}, {x(F), x(F)}, product_gelu),
      sample_of("linear_add", {x(C), w, bias, x(F)}, {x(F)}, product),
      sample_of("layer_norm", {x(C), norm, norm}, {x(C), row, row}, eps),
      sample_of("rms_norm", {x(C), norm}, {x(C), row}, eps),
      sample_of("rotary_table", {index}, {f32({B, T, D / 2}), f32({B, T, D / 2})},
                {{"head_dim", D}, {"type", std::string("default")}, {"theta", 10000.0}}),
      sample_of("rotary", {x(C), f32({B, T, D / 2}), f32({B, T, D / 2})}, {x(C)}, rotary),
      sample_of("attention", {x(C), x(C), x(C), index, random}, {x(C), lse}, attention),
      sample_of("attention_qkv", {x(3 * C), index, random}, {x(C), lse}, attention),
      sample_of("gelu", {x(F)}, {x(F)}, gelu),
      sample_of("swiglu", {x(F), x(F)}, {x(F)}, {}),
      sample_of("dropout", {x(C), random}, {x(C)}, {{"probability", 0.1}, {"stream", int64_t{3}}}),
      sample_of("head_loss", {x(C), table, index, one}, {one}, {{"chunk", int64_t{4}}}),
      sample_of("embedding_dtable", {index, x(C), f32({V, C})}, {f32({V, C})},
                {{"rows", V}, {"accumulate", int64_t{1}}}),
      sample_of("linear_dx", {x(F), w}, {x(C)}, weight),
      sample_of("linear_dweight", {x(C), x(F), f32({C, F})}, {f32({C, F})},
                {{"weight", io}, {"accumulate", int64_t{1}}}),
      sample_of("linear_dbias", {x(F), f32({F})}, {f32({F})}, adds),
      sample_of("layer_norm_dx", {x(C), x(C), norm, row, row}, {x(C)}, {}),
      sample_of("layer_norm_dweight", {x(C), x(C), row, row, f32({C}), f32({C})}, {f32({C}), f32({C})}, adds),
      sample_of("rms_norm_dx", {x(C), x(C), norm, row}, {x(C)}, {}),
      sample_of("rms_norm_dweight", {x(C), x(C), row, f32({C})}, {f32({C})}, adds),
      sample_of("attention_backward", {x(C), x(C), x(C), x(C), x(C), lse, index, random}, {x(C), x(C), x(C)},
                attention),
      sample_of("attention_qkv_backward", {x(C), x(3 * C), x(C), lse, index, random}, {x(3 * C)}, attention),
      sample_of("gelu_backward", {x(F), x(F)}, {x(F)}, gelu),
      sample_of("swiglu_backward", {x(F), x(F), x(F)}, {x(F), x(F)}, {}),
      sample_of("head_loss_gradient", {x(C), table, index, one}, {one, x(C), f32({V, C})},
                {{"chunk", int64_t{4}}, {"dweight", int64_t{1}}, {"accumulate", int64_t{0}}}),
      sample_of("mlp", {x(C), w, bias, down, norm}, {x(C)}, mlp),
      sample_of("mlp_gradient", {x(C), x(C), w, bias, down, norm},
                {x(C), f32({C, F}), f32({F}), f32({F, C}), f32({C})}, mlp_gradient),
      sample_of("mlp_gradient", {x(C), x(C), w, w, down}, {f32({C, F}), f32({F, C})}, gated_gradient),
      sample_of("narrow_gradient", {f32({C, F})}, {{DType::kBF16, {C, F}}}, {}),
      sample_of("fp8_encode", {x(F)}, {{DType::kU8, x(F).shape}, f32({ceil_div(x(F).shape.elements(), 128)})},
                {{"block", int64_t{128}}, {"format", "e4m3"}}),
      sample_of("fp8_decode", {{DType::kU8, x(F).shape}, f32({ceil_div(x(F).shape.elements(), 128)})}, {x(F)},
                {{"block", int64_t{128}}, {"format", "e4m3"}, {"out", std::string(dtype_name(a))}}),
      sample_of("sum_squares", {x(F)}, {sum}, {}),
      sample_of("update_control", {four, sum, sum}, {four}, {{"max_grad_norm", 1.0}}),
  };
  const Attributes adamw{{"beta1", 0.9},
                         {"beta2", 0.999},
                         {"eps", 1e-8},
                         {"weight_decay", 0.0},
                         {"narrow", int64_t{a == DType::kBF16}}};
  const OperandType p = f32({C, F});
  std::vector<OperandType> inputs = {p, p, p, p, four, four}, outputs = {p, p, p, {DType::kI32, {1}}};
  if (a == DType::kBF16) {
    inputs.push_back(w);
    outputs.push_back(w);
  }
  all.push_back(sample_of("adamw", inputs, outputs, adamw));
  // Moments in bf16, and in 8 bits with scales.
  const OperandType half{DType::kBF16, {C, F}}, codes{DType::kU8, {C, F}},
      scales{DType::kF32, {ceil_div(C * F, 256)}};
  const OperandType random_words{DType::kU32, {4}}, moved{DType::kI32, {1}};
  Attributes other = adamw;
  other.set("narrow", int64_t{0});
  all.push_back(sample_of("adamw", {p, codes, codes, p, four, four, scales, scales},
                          {p, codes, codes, moved, scales, scales}, other));
  other.set("stream", int64_t{3});
  all.push_back(
      sample_of("adamw", {p, half, half, p, four, four, random_words}, {p, half, half, moved}, other));
  return all;
}

class EveryKind : public testing::TestWithParam<DType> {};

TEST_P(EveryKind, IsTimed) {
  const std::vector<CostSample> samples = all_kinds(GetParam());
  std::map<size_t, double> times;
  double now = 0;  // a clock that moves by itself: each execution takes 1 ms
  time_samples(
      samples, choose_dispatch(2), kRates, {.seconds = 100, .memory = 1 * kMiB}, [&] { return now += 1e-3; },
      [&](size_t index, double seconds) { times[index] = seconds; });
  for (size_t i = 0; i < samples.size(); ++i) {
    ASSERT_TRUE(samples[i].known) << samples[i].key;
    ASSERT_TRUE(times.contains(i)) << samples[i].key;
    EXPECT_NEAR(times[i], 1e-3, 1e-9) << samples[i].key;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryKind, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

TEST(CostTimer, EndsWhenItsTimeIsOver) {
  const std::vector<CostSample> samples(20, add_of(1000));
  double now = 0;
  size_t timed = 0;
  time_samples(
      samples, choose_dispatch(2), kRates, {.seconds = 3, .memory = 1 * kMiB}, [&] { return now += 0.1; },
      [&](size_t, double) { ++timed; });
  EXPECT_GT(timed, 2u);
  EXPECT_LT(timed, 20u);
  EXPECT_LT(now, 3 + 1.0);  // what one execution and the questions around it take of this clock
}

TEST(CostTimer, PassesOverWhatDoesNotFit) {
  const std::vector<CostSample> samples = {add_of(1'000'000), add_of(1000)};
  EXPECT_EQ(sample_bytes(samples[0], choose_dispatch(2)), Bytes(3 * 4'000'000));
  std::vector<size_t> timed;
  double now = 0;
  time_samples(
      samples, choose_dispatch(2), kRates, {.seconds = 3, .memory = 1 * kMiB}, [&] { return now += 1e-6; },
      [&](size_t index, double) { timed.push_back(index); });
  EXPECT_EQ(timed, std::vector<size_t>{1});
  // Nor does it begin what would not end in time: 10^13 FLOP at 95 GFLOP/s.
  CostSample endless = add_of(1000);
  endless.cost.flops = 1e13;
  timed.clear();
  time_samples(
      std::vector{endless, samples[1]}, choose_dispatch(2), kRates, {.seconds = 3, .memory = 1 * kMiB},
      [&] { return now += 1e-6; }, [&](size_t index, double) { timed.push_back(index); });
  EXPECT_EQ(timed, std::vector<size_t>{1});
}

TEST(CostTimer, TakesTheLowerQuartile) {
  std::vector<double> clock = {0, 0, 0};  // read before the first execution
  double now = 0;
  for (double milliseconds : {5.0, 1.0, 1.1, 0.5, 1.1, 1.1, 1.0, 1.05}) {
    clock.push_back(now);
    clock.push_back(now += 1e-3 * milliseconds);
  }
  size_t at = 0;
  double result = 0;
  time_samples(
      std::vector{add_of(1000)}, choose_dispatch(2), kRates, {.seconds = 3, .memory = 1 * kMiB},
      [&] { return clock.at(std::min(at++, clock.size() - 1)); },
      [&](size_t, double seconds) { result = seconds; });
  EXPECT_NEAR(result, 1e-3, 1e-9);
  EXPECT_EQ(at, clock.size());
}

// One sample while something else runs every other moment, the next when that is over.
TEST(CostTimer, TimesOnceMoreWhatWasDisturbed) {
  using Seen = std::vector<std::pair<size_t, double>>;
  for (const double later : {1e-3, 9e-3}) {
    double now = 0, step = 3e-3;
    int64_t questions = 0;
    Seen seen;
    time_samples(
        std::vector{add_of(1000), add_of(500)}, choose_dispatch(2), kRates,
        {.seconds = 3, .memory = 1 * kMiB},
        [&] { return now += seen.empty() && ++questions % 4 < 2 ? 5e-3 : step; },
        [&](size_t index, double seconds) {
          seen.emplace_back(index, std::round(1e6 * seconds) / 1e6);
          step = later;
        });
    EXPECT_EQ(seen, (Seen{{0, 3e-3}, {1, later}, {0, std::min(3e-3, later)}}));
  }
}

TEST(CostTimer, TimesInAChildThatIsGoneAfterwards) {
  const std::vector<CostSample> samples = all_kinds(DType::kF32);
  const auto times =
      time_samples_in_child(samples, choose_dispatch(2), kRates, {.seconds = 20, .memory = 1 * kMiB});
  ASSERT_EQ(times.size(), samples.size());
  for (size_t i = 0; i < times.size(); ++i) {
    ASSERT_TRUE(times[i].has_value()) << samples[i].key;
    EXPECT_GT(*times[i], 0);
  }
  errno = 0;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(CostTimer, SurvivesAChildThatCannot) {
  CostSample broken = add_of(1000);
  broken.inputs[1].shape = Shape{7};  // the kernel refuses to be made of it
  const auto times = time_samples_in_child(std::vector{add_of(500), broken, add_of(100)}, choose_dispatch(2),
                                           kRates, {.seconds = 5, .memory = 1 * kMiB});
  ASSERT_EQ(times.size(), 3u);
  EXPECT_TRUE(times[0].has_value());
}

}  // namespace
}  // namespace snug::cpu
