// Packed samples are the samples alone: the same losses and gradients in one window as in windows of their own, padded.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/testing.h"
#include "data/sample_windows.h"
#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

constexpr double kLossTolerance = 2e-6;      // relative, as for the references
constexpr double kGradientTolerance = 1e-5;  // of the tensor's largest magnitude
constexpr int64_t kLength = 33;

class PackedSamples : public testing::TestWithParam<std::string> {
 protected:
  PackedSamples() {
    std::mt19937 random(11);
    const std::string path = directory_ / "samples";
    SampleWriter writer(path, {1, 2}, model_.vocabulary);
    for (const size_t size : {12u, 3u, 9u, 8u, 5u}) {  // 11, 2, 8, 7 and 4 positions: 32 of 33
      std::vector<int32_t> ids(size);
      std::vector<bool> supervised(size);
      for (size_t i = 0; i < size; ++i) {
        ids[i] = static_cast<int32_t>(random() % static_cast<uint64_t>(model_.vocabulary));
        supervised[i] = i + 1 == size || random() % 2 == 0;
      }
      writer.add(ids, supervised, false);
    }
    writer.finish();
    std::string why;
    samples_ = SampleFile::open(path, {1, 2}, model_.vocabulary, why);
  }

  Batch all_windows(Packing packing) const {
    SampleWindows windows(samples_, {}, kLength, packing, directory_.path(), "samples");
    Batch batch = make_batch(windows.count(), kLength);
    for (int64_t i = 0; i < windows.count(); ++i) windows.fill_row(batch, i, i);
    return batch;
  }
  // Runs one micro-step with it.
  std::unique_ptr<TrainingRun> run(const Batch& batch, float& loss) const {
    CompileOptions options;
    options.batch = batch.windows;
    options.length = kLength;
    auto run = std::make_unique<TrainingRun>(model_, ParameterFiles::from_scratch(model_, 1),
                                             TrainingRun::Setup{.compile = options});
    loss = run->micro_step(batch, 1.0f / static_cast<float>(batch.supervised_tokens), 0);
    return run;
  }

  const Model model_ = GetParam() == "gpt2" ? tiny_gpt2({.dropout = 0}) : tiny_llama({.dropout = 0});
  TemporaryDirectory directory_;
  std::shared_ptr<const SampleFile> samples_;
};

TEST_P(PackedSamples, HaveTheLossAndTheGradientsOfTheSamplesAlone) {
  const Batch packed = all_windows(Packing::kOn), alone = all_windows(Packing::kOff);
  ASSERT_EQ(packed.windows, 1);
  ASSERT_EQ(alone.windows, 5);
  ASSERT_EQ(packed.supervised_tokens, alone.supervised_tokens);
  float packed_loss = 0, alone_loss = 0, mixed_loss = 0;
  const auto packed_run = run(packed, packed_loss), alone_run = run(alone, alone_loss);
  EXPECT_LE(std::fabs(packed_loss - alone_loss) / alone_loss, kLossTolerance)
      << packed_loss << " " << alone_loss;
  int64_t compared = 0;
  for (const ParameterSpec& parameter : model_.parameters) {
    const std::vector<float> actual = packed_run->gradient(parameter.name),
                             expected = alone_run->gradient(parameter.name);
    ASSERT_EQ(actual.size(), expected.size());
    double largest = 0, difference = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
      difference = std::max(difference, std::fabs(static_cast<double>(actual[i]) - expected[i]));
    }
    EXPECT_LE(difference, kGradientTolerance * largest) << parameter.name;
    if (largest > 0) ++compared;
  }
  EXPECT_EQ(compared, static_cast<int64_t>(model_.parameters.size()));

  // Were they one document, they would see each other.
  Batch mixed = packed;
  std::fill(mixed.document_starts.begin(), mixed.document_starts.end(), 0);
  run(mixed, mixed_loss);
  EXPECT_GT(std::fabs(mixed_loss - alone_loss) / alone_loss, 100 * kLossTolerance);
  // And positions matter: not restarting them is something else.
  Batch counted = packed;
  for (size_t i = 0; i < counted.positions.size(); ++i) counted.positions[i] = static_cast<int32_t>(i);
  run(counted, mixed_loss);
  const double change = std::fabs(mixed_loss - alone_loss) / alone_loss;
  if (GetParam() == "gpt2") {
    EXPECT_GT(change, 100 * kLossTolerance);
  } else {
    EXPECT_LE(change, kLossTolerance) << "rotary positions are relative";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PackedSamples, testing::Values("gpt2", "llama"));

}  // namespace
}  // namespace snug
