// The forms in which AdamW keeps weights and moments: codes against the paper's map, fast kernels against the reference bit by bit,
// and that nothing stands still.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "backends/cpu/kernel_list.h"
#include "backends/cpu/test_operation.h"
#include "backends/cpu/update_codes.h"
#include "backends/cpu/update_rules.h"

namespace snug::cpu {
namespace {

// Values as the paper's authors list them: middles of 2^decade (unsigned: twice as many) even steps of each decade, sorted.
std::set<float> expected_values(bool is_signed) {
  std::set<float> values = {0.0f, 1.0f};
  for (int decade = 0; decade < 7; ++decade) {
    const int steps = (is_signed ? 1 : 2) << decade;
    for (int step = 0; step < steps; ++step) {
      const double low = 0.1 + 0.9 * step / steps, high = 0.1 + 0.9 * (step + 1) / steps;
      const double value = std::pow(10.0, decade - 6) * (low + high) / 2;
      values.insert(static_cast<float>(value));
      if (is_signed) values.insert(static_cast<float>(-value));
    }
  }
  return values;
}

class Maps : public testing::TestWithParam<bool> {
 protected:
  const MomentMap& map() const { return GetParam() ? signed_moment_map() : unsigned_moment_map(); }
};

TEST_P(Maps, HoldThePapersValuesOnce) {
  const std::set<float> expected = expected_values(GetParam());
  ASSERT_EQ(expected.size(), 256u);
  const std::set<float> found(map().values, map().values + 256);
  ASSERT_EQ(found.size(), 256u);
  for (auto a = found.begin(), b = expected.begin(); a != found.end(); ++a, ++b)
    EXPECT_NEAR(*a, *b, 1e-7 * std::fabs(*b));
  EXPECT_EQ(map().values[0], 0.0f);
}

TEST_P(Maps, GiveTheNearestCode) {
  const auto check = [&](float x) {
    const float found = map().values[map().code(x)];
    for (const float other : map().values)
      ASSERT_LE(std::fabs(found - x), std::fabs(other - x) + 4e-7f * std::fabs(x) + 1e-12f)
          << x << " became " << found;
  };
  for (int code = 0; code < 256; ++code) {
    const float value = map().values[code];
    EXPECT_EQ(map().code(value), code);
    check(value);
  }
  // Around every threshold, and evenly over the logarithm.
  for (int64_t p = 0; p + 1 < map().magnitudes; ++p)
    for (float x : {map().thresholds[p], std::nextafter(map().thresholds[p], 2.0f)}) {
      check(x);
      if (GetParam()) check(-x);
      const int64_t above = x > map().thresholds[p] ? 1 : 0;
      EXPECT_EQ(map().code(x), p + above);
    }
  for (double exponent = -8; exponent <= 0; exponent += 1e-3) {
    check(static_cast<float>(std::pow(10.0, exponent)));
    if (GetParam()) check(static_cast<float>(-std::pow(10.0, exponent)));
  }
}

TEST_P(Maps, StayInsideForWhateverComes) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(map().values[map().code(infinity)], 1.0f);
  EXPECT_EQ(map().values[map().code(2.0f)], 1.0f);
  EXPECT_EQ(map().values[map().code(std::numeric_limits<float>::quiet_NaN())], 1.0f);
  EXPECT_EQ(map().code(-0.0f), 0);
  EXPECT_EQ(map().code(1e-30f), 0);
  if (GetParam()) {
    EXPECT_NEAR(map().values[map().code(-1.0f)], -0.99297f, 1e-5) << "1 has no negative";
    EXPECT_NEAR(map().values[map().code(-infinity)], -0.99297f, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Signs, Maps, testing::Bool(),
                         [](const auto& test) { return test.param ? "Signed" : "Unsigned"; });

TEST(StochasticRounding, KeepsTheMeanAndWhatIsBf16Already) {
  const float low = 1.0f, high = 1.0078125f;
  for (const double share : {0.0, 0.1, 0.5, 0.9}) {
    const float x = static_cast<float>(low + share * (high - low));
    int64_t up = 0;
    for (uint32_t random = 0; random < 0x10000; ++random) {
      const float rounded = widen(narrow_stochastic(x, random | 0xABCD0000u));
      ASSERT_TRUE(rounded == low || rounded == high);
      up += rounded == high ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(up) / 65536, share, 1e-4);
  }
  EXPECT_EQ(widen(narrow_stochastic(-INFINITY, 0xFFFF)), -INFINITY);
  EXPECT_TRUE(std::isnan(widen(narrow_stochastic(NAN, 0xFFFF))));
}

enum class Weight { kWhole, kNarrow, kSplit, kNearest, kStochastic };
enum class Form { kWhole, kHalf, kCoded };

// AdamW of one parameter, step after step.
class AdamwRun {
 public:
  struct Setup {
    Weight weight = Weight::kWhole;
    Form moments = Form::kWhole;
    double beta2 = 0.999, weight_decay = 0.01;
    std::string_view implementation = {};
    int threads = 1;
  };

  AdamwRun(const Setup& setup, int64_t elements, double weight, uint32_t seed = 0)
      : setup_(setup),
        elements_(elements),
        attributes_({{"beta1", 0.9},
                     {"beta2", setup.beta2},
                     {"eps", 1e-8},
                     {"weight_decay", setup.weight_decay},
                     {"narrow", int64_t{setup.weight == Weight::kNarrow}}}) {
    const bool is_bf16 = setup.weight != Weight::kWhole && setup.weight != Weight::kNarrow;
    const Shape shape{elements}, blocks{ceil_div(elements, kMomentBlock)};
    const DType moment = setup.moments == Form::kWhole  ? DType::kF32
                         : setup.moments == Form::kHalf ? DType::kBF16
                                                        : DType::kU8;
    std::vector<double> weights(static_cast<size_t>(elements), weight);
    if (seed != 0) weights = TestTensor::random({DType::kF32, shape}, seed).values();
    add(TestTensor::of({is_bf16 ? DType::kBF16 : DType::kF32, shape}, weights));
    add(zeros({moment, shape}));
    add(zeros({moment, shape}));
    add(zeros({DType::kF32, shape}));  // gradient
    add(zeros({DType::kF32, {4}}));    // hyperparameters
    add(TestTensor::of({DType::kF32, {4}}, {1, 1, 0, -1}));
    if (setup.weight == Weight::kNarrow) add(TestTensor::of({DType::kBF16, shape}, weights));
    if (setup.weight == Weight::kSplit) {
      attributes_.set("split", int64_t{1});
      add(zeros({DType::kU8, {elements, 2}}));
    }
    if (is_bf16 && setup.weight != Weight::kSplit)
      attributes_.set("rounding", std::string(setup.weight == Weight::kNearest ? "nearest" : "stochastic"));
    if (setup.moments == Form::kCoded)
      for (int i = 0; i < 2; ++i) add(zeros({DType::kF32, blocks}));
    changed_ = {0, 1, 2};
    for (size_t i = 6; i < tensors_.size(); ++i) changed_.push_back(i);
    if (setup.moments == Form::kHalf || setup.weight == Weight::kStochastic) {
      attributes_.set("stream", int64_t{-77});
      randomness_ = tensors_.size();
      add(zeros({DType::kU32, {4}}));
    }
  }

  // Whether the stored weight moved.
  bool step(const std::vector<double>& gradient, double rate) {
    ++updates_;
    tensors_[3] = TestTensor::of(tensors_[3].type(), gradient);
    tensors_[4] = TestTensor::of(
        tensors_[4].type(), {rate, 1 - std::pow(0.9, updates_), 1 - std::pow(setup_.beta2, updates_), 1});
    if (randomness_ != 0)
      tensors_[randomness_] = TestTensor::of(tensors_[randomness_].type(), {7, 0, updates_, 0});
    std::vector<const TestTensor*> inputs, outputs;
    for (const TestTensor& tensor : tensors_) inputs.push_back(&tensor);
    for (size_t i : changed_) outputs.push_back(&tensors_[i]);
    const TestTensor moved({DType::kI32, {1}});
    outputs.insert(outputs.begin() + 3, &moved);
    Dispatch dispatch = choose_dispatch(setup_.threads);
    dispatch.threads = setup_.threads;
    run_operation("adamw", attributes_, inputs, outputs, {dispatch, setup_.implementation});
    return moved.values()[0] != 0;
  }
  bool step(double gradient, double rate) {
    return step(std::vector<double>(static_cast<size_t>(elements_), gradient), rate);
  }

  std::vector<double> weights() const {
    if (setup_.weight != Weight::kSplit) return tensors_[0].values();
    std::vector<double> joined;
    for (int64_t i = 0; i < elements_; ++i) {
      uint16_t low;
      std::memcpy(&low, tensors_[6].data() + 2 * i, 2);
      joined.push_back(join_halves(reinterpret_cast<const BFloat16*>(tensors_[0].data())[i], low));
    }
    return joined;
  }
  double mean_weight() const { return mean(weights()); }
  // Of the second moment, decoded.
  std::vector<double> v() const {
    std::vector<double> values = tensors_[2].values();
    if (setup_.moments == Form::kCoded) {
      const std::vector<double> scales = tensors_.back().values();
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = unsigned_moment_map().values[static_cast<size_t>(values[i])] * scales[i / kMomentBlock];
    }
    return values;
  }
  double mean_v() const { return mean(v()); }

  bool same_bits(const AdamwRun& other) const {
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (!tensors_[i].same_bits(other.tensors_[i])) return false;
    return true;
  }

 private:
  static double mean(const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  static TestTensor zeros(OperandType type) {
    TestTensor tensor(std::move(type));
    std::memset(tensor.data(), 0, static_cast<size_t>(tensor.type().bytes().value));
    return tensor;
  }
  void add(TestTensor tensor) { tensors_.push_back(std::move(tensor)); }

  Setup setup_;
  int64_t elements_;
  Attributes attributes_;
  std::vector<TestTensor> tensors_;  // the inputs
  std::vector<size_t> changed_;      // those in place of which outputs stand
  size_t randomness_ = 0;
  double updates_ = 0;
};

using Forms = std::tuple<Weight, Form>;
class AdamwForms : public testing::TestWithParam<Forms> {};

// Random gradients of very different sizes, some of them 0.
std::vector<double> gradients(int64_t elements, uint32_t seed) {
  std::vector<double> values = TestTensor::random({DType::kF32, {elements}}, seed).values();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % 7 == 3 ? 0 : values[i] * std::pow(10.0, -static_cast<double>(i % 9));
  return values;
}

TEST_P(AdamwForms, FastIsTheReferenceForAnyThreads) {
  for (const int64_t elements : {1, 255, 256, 259, 40000}) {
    const auto run = [&](std::string_view implementation, int threads) {
      AdamwRun made({.weight = std::get<0>(GetParam()),
                     .moments = std::get<1>(GetParam()),
                     .implementation = implementation,
                     .threads = threads},
                    elements, 0, 5);
      for (uint32_t update = 0; update < 3; ++update) made.step(gradients(elements, update + 1), 1e-2);
      return made;
    };
    const AdamwRun reference = run("reference", 1);
    for (const int threads : {1, 2, 3})
      EXPECT_TRUE(run("highway", threads).same_bits(reference))
          << elements << " elements, " << threads << " threads";
  }
}

TEST_P(AdamwForms, DriftAsFp32DoesAndDecay) {
  const auto [weight, moments] = GetParam();
  if (weight == Weight::kNearest) GTEST_SKIP() << "stands still: StandingStill";
  // The second half of the elements has gradients a thousand times smaller: Adam moves both alike.
  constexpr int64_t kElements = 1024;
  std::vector<double> gradient(kElements, 1.0);
  std::fill(gradient.begin() + kElements / 2, gradient.end(), 1e-3);
  AdamwRun run({.weight = weight, .moments = moments}, kElements, 1.0), exact({}, kElements, 1.0);
  for (int update = 0; update < 100; ++update) {
    run.step(gradient, 6e-4);
    exact.step(gradient, 6e-4);
  }
  const std::vector<double> found = run.weights(), expected = exact.weights();
  for (const size_t half : {size_t{0}, size_t{1}}) {
    double drift = 0, fp32 = 0;
    for (size_t i = half * kElements / 2; i < (half + 1) * kElements / 2; ++i) {
      drift += found[i] - 1;
      fp32 += expected[i] - 1;
    }
    EXPECT_NEAR(drift / fp32, 1, 0.05) << half;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdamwForms,
                         testing::Combine(testing::Values(Weight::kWhole, Weight::kNarrow, Weight::kSplit,
                                                          Weight::kNearest, Weight::kStochastic),
                                          testing::Values(Form::kWhole, Form::kHalf, Form::kCoded)));

// T2: 768 weights of 1 in bf16, a gradient of constant sign, 100 updates of AdamW at 6e-4 with decay 0.01. Half a bf16 step below 1
// is 0.00195; an update is 0.0006.
TEST(StandingStill, RoundingToNearestNeverMovesAndIsSeen) {
  AdamwRun nearest({.weight = Weight::kNearest}, 768, 1.0);
  for (int update = 0; update < 100; ++update) EXPECT_FALSE(nearest.step(1.0, 6e-4)) << "moved at " << update;
  EXPECT_THAT(nearest.weights(), testing::Each(1.0));
}

TEST(StandingStill, StochasticRoundingAndMastersDriftAsFp32) {
  AdamwRun exact({}, 768, 1.0), undecayed({.weight_decay = 0}, 768, 1.0);
  std::vector<AdamwRun> runs;
  for (const Weight weight : {Weight::kStochastic, Weight::kSplit, Weight::kNarrow})
    runs.emplace_back(AdamwRun::Setup{.weight = weight}, 768, 1.0);
  for (int update = 0; update < 100; ++update) {
    exact.step(1.0, 6e-4);
    undecayed.step(1.0, 6e-4);
    for (AdamwRun& run : runs) EXPECT_TRUE(run.step(1.0, 6e-4));
  }
  const double drift = exact.mean_weight() - 1;
  EXPECT_NEAR(drift, -0.0606, 1e-3) << "100 · 6e-4, and the decay's 100 · 6e-6";
  for (const AdamwRun& run : runs) EXPECT_NEAR((run.mean_weight() - 1) / drift, 1, 0.05);
  EXPECT_NEAR(undecayed.mean_weight() - exact.mean_weight(), 0.0006, 1e-4);
}

// An update decays a weight by 6e-6 of itself, a thousandth of a bf16 step: over 2,000 updates 1.2 %.
TEST(StandingStill, DecayAloneIsVisibleWithoutMasters) {
  constexpr int64_t kElements = 4096;
  AdamwRun stochastic({.weight = Weight::kStochastic}, kElements, 1.0),
      nearest({.weight = Weight::kNearest}, kElements, 1.0);
  for (int update = 0; update < 2000; ++update) {
    stochastic.step(0.0, 6e-4);
    EXPECT_FALSE(nearest.step(0.0, 6e-4));
  }
  EXPECT_NEAR(1 - stochastic.mean_weight(), 0.0119, 0.0006);
}

// With beta2 = 0.999 an update moves v by a thousandth of the distance to g²: below half a bf16 step of v from v = g² / 4 on.
TEST(StandingStill, SecondMomentsInBf16Converge) {
  AdamwRun half({.moments = Form::kHalf}, 4096, 1.0), exact({}, 4096, 1.0);
  for (int update = 0; update < 2000; ++update) {
    half.step(1.0, 0);
    exact.step(1.0, 0);
  }
  EXPECT_NEAR(exact.mean_v(), 1 - std::pow(0.999, 2000), 1e-4);
  EXPECT_NEAR(half.mean_v(), exact.mean_v(), 0.005);
  for (int update = 0; update < 2000; ++update) half.step(0.0, 0), exact.step(0.0, 0);
  EXPECT_NEAR(half.mean_v() / exact.mean_v(), 1, 0.02) << "and back";
}

// A gradient ten thousand times below its block's largest: v would be code 0, and the next update would divide by next to nothing.
TEST(CodedMoments, OfSmallGradientsDoNotExplode) {
  std::vector<double> gradient(256, 1e-4);
  gradient[0] = 1;
  AdamwRun coded({.moments = Form::kCoded, .weight_decay = 0}, 256, 0.0);
  for (int update = 0; update < 50; ++update) coded.step(gradient, 1e-3);
  for (double weight : coded.weights()) EXPECT_LE(std::fabs(weight), 50 * 1e-3 * 1.05);
  for (double v : coded.v()) EXPECT_GT(v, 0);
}

}  // namespace
}  // namespace snug::cpu
