// Loading and saving without training gives back every tensor byte for byte, in whatever form the file was.
#include <gtest/gtest.h>

#include "base/testing.h"
#include "fixture.h"

namespace snug {
namespace {

struct Case {
  std::string fixture;
  Precision precision;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& name : fixture_names())
    for (Precision precision : {Precision::kF32, Precision::kBF16, Precision::kF16}) all.push_back({name, precision});
  return all;
}

std::vector<std::byte> bytes_of(const WeightSource& source, const WeightEntry& entry) {
  std::vector<std::byte> bytes(static_cast<size_t>(entry.bytes));
  source.read(entry, 0, bytes);
  return bytes;
}

class Save : public testing::TestWithParam<Case> {};

TEST_P(Save, EveryTensorIsByteIdentical) {
  const Fixture fixture(GetParam().fixture);
  CompileOptions options;
  options.batch = 1;
  options.length = 8;
  options.precision = GetParam().precision;
  options.staging = Bytes(1024);  // many pieces a tensor
  TrainingRun run(fixture.model(), fixture.weights(), {.compile = options});
  const TemporaryDirectory directory;
  save_weights(fixture.weights(), run.executor(), directory.path());

  const WeightSource before = fixture.directory().open_weights();
  const WeightSource after = WeightSource::open(directory.path());
  EXPECT_EQ(after.tensors().size(), fixture.model().parameters.size());
  for (const WeightEntry& entry : after.tensors()) {
    const WeightEntry* original = before.find(entry.name);
    ASSERT_NE(original, nullptr) << entry.name;
    EXPECT_EQ(entry.dtype, original->dtype) << entry.name;
    EXPECT_EQ(entry.shape, original->shape) << entry.name;
    EXPECT_TRUE(bytes_of(after, entry) == bytes_of(before, *original)) << entry.name;
  }
  // What is not written is no parameter: buffers of old files, or a tied head's copy.
  for (const WeightEntry& entry : before.tensors())
    EXPECT_TRUE(after.find(entry.name) != nullptr || is_ignorable_tensor(fixture.model(), entry.name) ||
                is_tied_copy(fixture.model(), entry.name))
        << entry.name;
}

TEST_P(Save, TrainedWeightsAreTheOnesThatAreSaved) {
  const Fixture fixture(GetParam().fixture);
  CompileOptions options;
  options.batch = fixture.batch();
  options.length = fixture.length();
  options.precision = GetParam().precision;
  TrainingRun run(fixture.model(), fixture.weights(), {.compile = options});
  const Batch batch = fixture.step(0);
  ASSERT_EQ(run.update(std::span(&batch, 1), 1e-2f).control.applied, 1);
  const TemporaryDirectory directory;
  ParameterFiles files = fixture.weights();
  files.save_as(FileDType::kF32);
  save_weights(files, run.executor(), directory.path());
  const WeightSource saved = WeightSource::open(directory.path());
  for (const ParameterSpec& parameter : fixture.model().parameters) {
    const WeightEntry* entry = saved.find(fixture.stored(parameter));
    ASSERT_NE(entry, nullptr) << parameter.name;
    EXPECT_EQ(entry->dtype, FileDType::kF32);
    const std::vector<float> weight = run.weight(parameter.name);
    const std::span<const std::byte> expected = std::as_bytes(std::span(weight));
    const std::vector<std::byte> bytes = bytes_of(saved, *entry);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end())) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Save, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.fixture + "_" + precision_name(test.param.precision);
});

}  // namespace
}  // namespace snug
