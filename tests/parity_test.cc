// Ten AdamW steps of every model fixture against PyTorch's (tools/make_fixtures.py): losses, norms, gradients, weights.
//
// Bounds are a few times what was measured on an AVX2 processor, largest over all fixtures: losses 1.5e-7, norms 9e-7, gradients 1.6e-6
// of the tensor's largest magnitude, final weights 1.0e-5 (absolute), bf16 losses 2.3e-3. PyTorch's own float32 lies as far from float64
// (tools/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fixture.h"

namespace snug {
namespace {

constexpr double kLossTolerance = 2e-6;      // relative, float32
constexpr double kNormTolerance = 1e-5;      // relative
constexpr double kGradientTolerance = 1e-5;  // of the tensor's largest magnitude
constexpr double kLogitTolerance = 1e-5;     // of the largest magnitude
constexpr double kBf16LossTolerance = 1e-2;  // relative, against CPU autocast
constexpr double kFp16LossTolerance = 2e-3;  // relative, against CPU autocast with a GradScaler
// Of a weight after ten steps, absolute. A step moves a weight by up to the learning rate 1e-3 whatever its gradient's size, so
// where a gradient is near zero its rounding shows.
constexpr double kWeightTolerance = 5e-5;

class Parity : public testing::TestWithParam<std::string> {
 protected:
  TrainingRun::Setup setup(const Fixture& fixture, Precision precision) const {
    CompileOptions options;
    options.batch = fixture.batch();
    options.length = fixture.length();
    options.precision = precision;
    options.optimizer = fixture.optimizer();
    options.evaluate = true;
    options.eval_batch = fixture.batch();
    options.generate_lengths = {8, fixture.length()};
    return {.compile = options};
  }
};

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// The largest |actual - expected|; infinity for a NaN or another size.
double largest_difference(const std::vector<float>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::fabs(actual[i] - expected[i]);
    if (std::isnan(difference)) return INFINITY;
    largest = std::max(largest, difference);
  }
  return largest;
}

double relative_difference(double actual, double expected) {
  const double difference = std::fabs(actual - expected) / std::fabs(expected);
  return std::isnan(difference) ? INFINITY : difference;
}

TEST_P(Parity, LossesNormsGradientsAndWeightsOfTenSteps) {
  const Fixture fixture(GetParam());
  TrainingRun run(fixture.model(), fixture.weights(), setup(fixture, Precision::kF32));
  const std::vector<double> losses = fixture.expected("losses"), norms = fixture.expected("grad_norms");

  int64_t compared_gradients = 0;
  for (int64_t step = 0; step < Fixture::kSteps; ++step) {
    const Batch batch = fixture.step(step);
    const float loss = run.micro_step(batch, 1.0f / static_cast<float>(batch.supervised_tokens), 0);
    EXPECT_LE(relative_difference(loss, losses.at(static_cast<size_t>(step))), kLossTolerance)
        << "step " << step << ": " << loss;
    if (step == 0)
      for (const ParameterSpec& parameter : fixture.model().parameters) {
        const std::string name = "grad." + fixture.stored(parameter);
        if (!fixture.has(name)) continue;
        const std::vector<double> expected = fixture.expected(name);
        EXPECT_LE(largest_difference(run.gradient(parameter.name), expected),
                  kGradientTolerance * largest_magnitude(expected))
            << name;
        ++compared_gradients;
      }
    const Control control = run.apply(fixture.learning_rate(), true);
    const double norm = norms.at(static_cast<size_t>(step));
    EXPECT_LE(relative_difference(control.norm, norm), kNormTolerance) << "step " << step;
    EXPECT_EQ(control.applied, 1) << "step " << step;
    EXPECT_EQ(control.first_non_finite, -1) << "step " << step;
    EXPECT_NEAR(control.clip, std::min(1.0, fixture.optimizer().max_grad_norm / (norm + 1e-6)), 1e-4)
        << "step " << step;
  }

  int64_t compared_weights = 0;
  for (const ParameterSpec& parameter : fixture.model().parameters) {
    const std::string name = "final." + fixture.stored(parameter);
    if (!fixture.has(name)) continue;
    std::vector<double> expected = fixture.expected(name);
    std::vector<float> actual = run.weight(parameter.name);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    if (parameter.name.ends_with("attn.c_attn.bias")) {
      // The keys' part: its gradient is exactly zero, and Adam makes whole steps of its rounding noise. Each moves
      // by at most about the learning rate.
      const size_t third = actual.size() / 3;
      for (size_t i = third; i < 2 * third; ++i) {
        EXPECT_LE(std::fabs(actual[i] - expected[i]), 2.0 * Fixture::kSteps * fixture.learning_rate())
            << name;
        actual[i] = static_cast<float>(expected[i]);
      }
    }
    EXPECT_LE(largest_difference(actual, expected), kWeightTolerance) << name;
    ++compared_weights;
  }
  const bool is_whole = fixture.has("grad." + fixture.stored(fixture.model().parameters.front()));
  const auto all = static_cast<int64_t>(fixture.model().parameters.size());
  EXPECT_EQ(compared_gradients, is_whole ? all : 0);
  EXPECT_EQ(compared_weights, is_whole ? all : 0);
}

TEST_P(Parity, Logits) {
  const Fixture fixture(GetParam());
  TrainingRun run(fixture.model(), fixture.weights(), setup(fixture, Precision::kF32));
  const std::vector<double> expected = fixture.expected("logits");
  const auto vocabulary = static_cast<size_t>(fixture.model().vocabulary);
  ASSERT_EQ(expected.size(), 4 * vocabulary);
  const Batch batch = fixture.step(0);
  for (size_t position = 0; position < 4; ++position) {
    // Later tokens stay away: what is not there yet cannot matter.
    const std::span<const int32_t> tokens = std::span(batch.tokens).first(position + 1);
    const auto row = expected.begin() + static_cast<ptrdiff_t>(position * vocabulary);
    for (int64_t length : {int64_t{8}, fixture.length()})
      EXPECT_LE(largest_difference(run.next_logits(tokens, static_cast<int32_t>(position), length),
                                   {row, row + static_cast<ptrdiff_t>(vocabulary)}),
                kLogitTolerance * largest_magnitude(expected))
          << "position " << position << " by generate_" << length;
  }
}

TEST_P(Parity, EvaluationBeforeTheFirstStep) {
  const Fixture fixture(GetParam());
  TrainingRun run(fixture.model(), fixture.weights(), setup(fixture, Precision::kF32));
  const float loss = run.evaluate(fixture.step(0));
  EXPECT_LE(relative_difference(loss, fixture.expected("losses").at(0)), kLossTolerance) << loss;
}

TEST_P(Parity, Bf16LossesAreThoseOfAutocast) {
  const Fixture fixture(GetParam());
  TrainingRun run(fixture.model(), fixture.weights(), setup(fixture, Precision::kBF16));
  const std::vector<double> losses = fixture.expected("bf16_losses"), exact = fixture.expected("losses");
  double differs = 0;
  for (int64_t step = 0; step < Fixture::kSteps; ++step) {
    const Batch batch = fixture.step(step);
    const double loss = run.update(std::span(&batch, 1), fixture.learning_rate()).loss;
    EXPECT_LE(relative_difference(loss, losses.at(static_cast<size_t>(step))), kBf16LossTolerance)
        << "step " << step << ": " << loss;
    differs = std::max(differs, relative_difference(loss, exact.at(static_cast<size_t>(step))));
  }
  EXPECT_GT(differs, 1e-6) << "bf16 gave float32's losses: nothing was rounded";
}

TEST_P(Parity, Fp16LossesAreThoseOfAutocastWithAGradScaler) {
  const Fixture fixture(GetParam());
  TrainingRun run(fixture.model(), fixture.weights(), setup(fixture, Precision::kF16));
  const std::vector<double> losses = fixture.expected("fp16_losses"), exact = fixture.expected("losses");
  double differs = 0;
  for (int64_t step = 0; step < Fixture::kSteps; ++step) {
    const Batch batch = fixture.step(step);
    const UpdateResult result = run.update(std::span(&batch, 1), fixture.learning_rate());
    EXPECT_EQ(result.control.applied, 1) << "step " << step;
    EXPECT_LE(relative_difference(result.loss, losses.at(static_cast<size_t>(step))), kFp16LossTolerance)
        << "step " << step << ": " << result.loss;
    EXPECT_LE(relative_difference(result.control.norm, fixture.expected("grad_norms").at(static_cast<size_t>(step))), 5e-2)
        << "step " << step << ": the norm is not that of unscaled gradients";
    differs = std::max(differs, relative_difference(result.loss, exact.at(static_cast<size_t>(step))));
  }
  EXPECT_GT(differs, 1e-7) << "fp16 gave float32's losses: nothing was rounded";
}

// The same gradients whatever the scale; only what underflows differs.
TEST_P(Parity, Fp16GradientsDoNotDependOnTheScale) {
  const Fixture fixture(GetParam());
  const auto train = [&](float scale) {
    TrainingRun::Setup with_scale = setup(fixture, Precision::kF16);
    with_scale.loss_scale = scale;
    TrainingRun run(fixture.model(), fixture.weights(), with_scale);
    std::vector<float> numbers;
    for (int64_t step = 0; step < 3; ++step) {
      const Batch batch = fixture.step(step);
      const UpdateResult result = run.update(std::span(&batch, 1), fixture.learning_rate());
      numbers.insert(numbers.end(), {static_cast<float>(result.loss), result.control.norm});
    }
    return numbers;
  };
  const std::vector<float> few = train(1024), many = train(8192);
  for (size_t i = 0; i < few.size(); ++i) EXPECT_LE(relative_difference(few[i], many[i]), 2e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Parity, testing::ValuesIn(fixture_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace snug
