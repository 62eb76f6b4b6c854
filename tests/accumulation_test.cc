// T1: micro-batches of 1, 7 and 0 supervised tokens give the gradients of one batch that holds them all.
//
// The failure it guards against is a mean of means: averaging each micro-batch over its own tokens first gives
// the lone token of the first one seven times the weight of each of the second's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/gpt2.h"
#include "models/llama.h"
#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

constexpr int64_t kLength = 8, kVocabulary = 16;
constexpr std::array<int64_t, 3> kSupervised = {1, 7, 0};

Model small_model(const std::string& family) {
  if (family == "gpt2") {
    Gpt2Config config;
    config.vocab_size = kVocabulary;
    config.positions = kLength;
    config.hidden = 8;
    config.inner = 32;
    config.layers = 1;
    config.heads = 2;
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
    config.initializer_range = 0.5;
    return gpt2_model(config);
  }
  LlamaConfig config;
  config.vocab_size = kVocabulary;
  config.positions = kLength;
  config.hidden = 8;
  config.intermediate = 24;
  config.layers = 1;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.initializer_range = 0.5;
  return llama_model(config);
}

// One sample with `supervised` targets.
Batch sample(int64_t index) {
  Batch batch = make_batch(1, kLength);
  for (int64_t t = 0; t < kLength; ++t) {
    const auto i = static_cast<size_t>(t);
    batch.tokens[i] = static_cast<int32_t>((5 * t + 3 * index + 1) % kVocabulary);
    if (t < kSupervised.at(static_cast<size_t>(index)))
      batch.targets[i] = static_cast<int32_t>((7 * t + index) % kVocabulary);
  }
  batch.supervised_tokens = kSupervised.at(static_cast<size_t>(index));
  batch.windows = 1;
  return batch;
}

Batch all_samples() {
  Batch all = make_batch(3, kLength);
  for (int64_t index = 0; index < 3; ++index) {
    const Batch one = sample(index);
    std::copy(one.tokens.begin(), one.tokens.end(), all.tokens.begin() + index * kLength);
    std::copy(one.targets.begin(), one.targets.end(), all.targets.begin() + index * kLength);
    all.supervised_tokens += one.supervised_tokens;
  }
  all.windows = 3;
  return all;
}

TrainingRun::Setup setup(int64_t batch, int64_t accumulation) {
  CompileOptions options;
  options.batch = batch;
  options.length = kLength;
  options.accumulation = accumulation;
  return {.compile = options};
}

// The largest difference as a part of the largest magnitude of `expected`.
double relative_difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  double largest = 0, difference = 0;
  EXPECT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::fabs(double{expected[i]}));
    difference = std::max(difference, std::fabs(double{actual[i]} - double{expected[i]}));
  }
  EXPECT_GT(largest, 0);
  return difference / largest;
}

// The same tokens seen in another update.
Batch other_update(Batch batch) {
  for (size_t i = 2; i < batch.randomness.size(); i += 4) ++batch.randomness[i];
  return batch;
}

class Accumulation : public testing::TestWithParam<std::string> {};

TEST_P(Accumulation, MicroBatchesOfOneSevenAndNoTokensAreOneBatch) {
  const Model model = small_model(GetParam());
  const ParameterFiles weights = ParameterFiles::from_scratch(model, 3);
  TrainingRun whole(model, weights, setup(3, 1));
  TrainingRun accumulated(model, weights, setup(1, 3));

  const float whole_loss = whole.micro_step(all_samples(), 1.0f / 8, 0);
  double accumulated_loss = 0;
  for (int64_t i = 0; i < 3; ++i) accumulated_loss += accumulated.micro_step(sample(i), 1.0f / 8, i);
  EXPECT_NEAR(accumulated_loss / whole_loss, 1, 1e-6);
  for (const ParameterSpec& parameter : model.parameters)
    EXPECT_LE(relative_difference(accumulated.gradient(parameter.name), whole.gradient(parameter.name)), 1e-6)
        << parameter.name;

  // The same sums seen from the update.
  const Control whole_control = whole.apply(1e-3f, true),
                accumulated_control = accumulated.apply(1e-3f, true);
  EXPECT_NEAR(accumulated_control.norm / whole_control.norm, 1, 1e-6);
}

TEST_P(Accumulation, AMeanOfMeansIsAnotherGradient) {
  const Model model = small_model(GetParam());
  const ParameterFiles weights = ParameterFiles::from_scratch(model, 3);
  TrainingRun whole(model, weights, setup(3, 1));
  whole.micro_step(all_samples(), 1.0f / 8, 0);
  TrainingRun wrong(model, weights, setup(1, 3));
  // Each by its own tokens, then by the number of micro-batches that had any.
  for (int64_t i = 0; i < 3; ++i)
    wrong.micro_step(sample(i),
                     i == 2 ? 0.0f : 0.5f / static_cast<float>(kSupervised.at(static_cast<size_t>(i))), i);
  for (const ParameterSpec& parameter : model.parameters)
    EXPECT_GT(relative_difference(wrong.gradient(parameter.name), whole.gradient(parameter.name)), 0.1)
        << parameter.name;
}

TEST_P(Accumulation, ANewUpdateForgetsTheLastOne) {
  // The first repetition overwrites: three more micro-steps give the same sums bit by bit.
  const Model model = small_model(GetParam());
  const ParameterFiles weights = ParameterFiles::from_scratch(model, 3);
  TrainingRun run(model, weights, setup(1, 3));
  for (int64_t i = 0; i < 3; ++i) run.micro_step(sample(i), 1.0f / 8, i);
  std::map<std::string, std::vector<std::byte>> first;
  for (const ParameterSpec& parameter : model.parameters)
    first[parameter.name] = run.bytes("d." + parameter.name);
  for (int64_t i = 0; i < 3; ++i) run.micro_step(sample(i), 1.0f / 8, i);
  for (const ParameterSpec& parameter : model.parameters)
    EXPECT_TRUE(first[parameter.name] == run.bytes("d." + parameter.name)) << parameter.name;
}

TEST_P(Accumulation, NoSupervisedTokenAtAllGivesZeros) {
  const Model model = small_model(GetParam());
  TrainingRun run(model, ParameterFiles::from_scratch(model, 3), setup(1, 3));
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(run.micro_step(sample(2), 0.0f, i), 0.0f);
  for (const ParameterSpec& parameter : model.parameters)
    for (float value : run.gradient(parameter.name)) ASSERT_EQ(value, 0.0f) << parameter.name;
}

TEST_P(Accumulation, DropoutFollowsTheSampleAndNotTheMicroBatch) {
  const Model model = GetParam() == "gpt2" ? tiny_gpt2() : tiny_llama();
  const ParameterFiles weights = ParameterFiles::from_scratch(model, 3);
  CompileOptions options;
  options.length = 20;
  options.batch = 4;
  TrainingRun whole(model, weights, {.compile = options});
  options.batch = 2;
  options.accumulation = 2;
  TrainingRun halves(model, weights, {.compile = options});
  const auto loss_of = [&](TrainingRun& run, int64_t samples) {
    double loss = 0;
    for (int64_t first = 0; first < 4; first += samples)
      loss += run.micro_step(random_batch(samples, 20, model.vocabulary, 9, 5, first), 1.0f / 50,
                             first / samples);
    return loss;
  };
  const double loss = loss_of(whole, 4);
  EXPECT_NEAR(loss_of(halves, 2) / loss, 1, 1e-6);
  for (const ParameterSpec& parameter : model.parameters)
    EXPECT_LE(relative_difference(halves.gradient(parameter.name), whole.gradient(parameter.name)), 1e-5)
        << parameter.name;
  // Another update of the same samples has other masks.
  EXPECT_GT(
      std::fabs(whole.micro_step(other_update(random_batch(4, 20, model.vocabulary, 9, 5, 0)), 1.0f / 50, 0) -
                loss),
      1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, Accumulation, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace snug
