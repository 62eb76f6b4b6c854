// A NaN or an infinity skips the update by a branch: no weight, master weight or moment changes a bit, the tensor is named.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

constexpr int64_t kBatch = 2, kLength = 16;
constexpr float kLearningRate = 1e-2f;

struct Case {
  std::string family;
  Precision precision;
};

class NonFinite : public testing::TestWithParam<Case> {
 protected:
  NonFinite()
      : model_(GetParam().family == "gpt2" ? tiny_gpt2() : tiny_llama()),
        weights_(ParameterFiles::from_scratch(model_, 5)) {}

  TrainingRun::Setup setup() const {
    CompileOptions options;
    options.batch = kBatch;
    options.length = kLength;
    options.precision = GetParam().precision;
    options.optimizer.weight_decay = 0.1;
    return {.compile = options};
  }
  Batch batch(int64_t update) const {
    return random_batch(kBatch, kLength, model_.vocabulary, 21, update, update * kBatch);
  }
  float micro_step(TrainingRun& run, const Batch& batch) const {
    return run.micro_step(batch, 1.0f / static_cast<float>(batch.supervised_tokens), 0);
  }
  // Puts `value` into element `element` of a tensor of f32.
  static void plant(TrainingRun& run, const std::string& tensor, int64_t element, float value) {
    run.executor().write(run.executor().tensor(tensor), element * 4, std::as_bytes(std::span(&value, 1)));
  }

  Model model_;
  ParameterFiles weights_;
};

TEST_P(NonFinite, AGradientLeavesEveryBitAndIsNamed) {
  TrainingRun run(model_, weights_, setup());
  const Batch first = batch(0), second = batch(1);
  ASSERT_EQ(run.update(std::span(&first, 1), kLearningRate).control.applied, 1);
  const auto before = run.state();
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()})
    for (size_t index : {size_t{0}, model_.parameters.size() / 2, model_.parameters.size() - 1}) {
      const ParameterSpec& parameter = model_.parameters[index];
      ASSERT_TRUE(std::isfinite(micro_step(run, second)));
      plant(run, "d." + parameter.name, parameter.shape.elements() - 1, bad);
      const Control control = run.apply(kLearningRate, true);
      EXPECT_EQ(control.applied, 0) << parameter.name << " " << bad;
      EXPECT_EQ(control.first_non_finite, static_cast<float>(index)) << parameter.name << " " << bad;
      EXPECT_TRUE(run.state() == before) << parameter.name << " " << bad;
      for (const ParameterSpec& other : model_.parameters)
        EXPECT_EQ(run.bytes("update/moved." + other.name), std::vector<std::byte>(4)) << other.name;
    }
}

TEST_P(NonFinite, TheFirstOfSeveralIsNamed) {
  TrainingRun run(model_, weights_, setup());
  micro_step(run, batch(0));
  for (size_t index : {size_t{3}, size_t{1}, size_t{5}})
    plant(run, "d." + model_.parameters[index].name, 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(run.apply(kLearningRate, true).first_non_finite, 1);
}

TEST_P(NonFinite, AWeightMakesTheLossNaNAndIsNotSpread) {
  TrainingRun run(model_, weights_, setup());
  // What the forward reads: the weight itself, or the bf16 copy of its master.
  const std::string norm = model_.family == "gpt2" ? "transformer.ln_f.weight" : "model.norm.weight";
  const PlanTensor& planned = run.plan().tensor(run.executor().tensor(norm));
  const std::vector<std::byte> nan(static_cast<size_t>(dtype_bytes(planned.dtype)), std::byte{0xFF});
  run.executor().write(run.executor().tensor(norm), 0, nan);
  const auto before = run.state();
  const Batch first = batch(0);
  const UpdateResult result = run.update(std::span(&first, 1), kLearningRate);
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_EQ(result.control.applied, 0);
  EXPECT_GE(result.control.first_non_finite, 0);
  EXPECT_TRUE(run.state() == before);
}

TEST_P(NonFinite, ALossAloneSkipsToo) {
  TrainingRun run(model_, weights_, setup());
  micro_step(run, batch(0));
  const auto before = run.state();
  const Control control = run.apply(kLearningRate, false);
  EXPECT_EQ(control.applied, 0);
  EXPECT_EQ(control.first_non_finite, -1) << "every gradient is finite";
  EXPECT_TRUE(run.state() == before);
}

TEST_P(NonFinite, ASkippedUpdateLeavesNoTrace) {
  TrainingRun disturbed(model_, weights_, setup()), undisturbed(model_, weights_, setup());
  for (int64_t update = 0; update < 3; ++update) {
    const Batch good = batch(update), bad = batch(10 + update);
    micro_step(disturbed, bad);
    plant(disturbed, "d." + model_.parameters[2].name, 0, std::numeric_limits<float>::infinity());
    ASSERT_EQ(disturbed.apply(kLearningRate, true).applied, 0);
    const UpdateResult a = disturbed.update(std::span(&good, 1), kLearningRate);
    const UpdateResult b = undisturbed.update(std::span(&good, 1), kLearningRate);
    ASSERT_EQ(a.control.applied, 1);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.control.norm, b.control.norm);
    EXPECT_TRUE(disturbed.state() == undisturbed.state()) << "update " << update;
  }
  for (const ParameterSpec& parameter : model_.parameters)
    EXPECT_EQ(disturbed.bytes("update/moved." + parameter.name).at(0), std::byte{1}) << parameter.name;
}

INSTANTIATE_TEST_SUITE_P(Runs, NonFinite,
                         testing::Values(Case{"gpt2", Precision::kF32}, Case{"gpt2", Precision::kBF16},
                                         Case{"llama", Precision::kF32}, Case{"llama", Precision::kBF16},
                                         Case{"gpt2", Precision::kF16}, Case{"llama", Precision::kF16}),
                         [](const auto& test) {
                           return fmt::format("{}_{}", test.param.family,
                                              precision_name(test.param.precision));
                         });

}  // namespace
}  // namespace snug
