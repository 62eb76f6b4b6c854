// Masters as bf16 weights and their 16 missing bits: every number exactly, the bits of whole fp32 masters, 2 bytes a parameter less.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

TEST(SplitMaster, IsEveryNumberExactly) {
  std::vector<float> numbers;
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      numbers.push_back(std::bit_cast<float>(high << 16 | low));
  const auto n = static_cast<int64_t>(numbers.size());
  std::vector<uint16_t> weight(numbers.size()), low(numbers.size()), narrowed(numbers.size());
  std::vector<float> joined(numbers.size());
  split_master(numbers.data(), weight.data(), low.data(), n);
  narrow_weight(numbers.data(), narrowed.data(), n);
  EXPECT_TRUE(weight == narrowed);
  join_master(weight.data(), low.data(), joined.data(), n);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (std::isnan(numbers[i]))
      ASSERT_TRUE(std::isnan(joined[i])) << i;
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(numbers[i]), std::bit_cast<uint32_t>(joined[i])) << i;
  }
}

class MasterForms : public testing::TestWithParam<std::string> {
 protected:
  MasterForms()
      : model_(GetParam() == "gpt2" ? tiny_gpt2() : tiny_llama()),
        weights_(ParameterFiles::from_scratch(model_, 7)) {}

  TrainingRun run(MasterWeights master, UpdatePlacement placement = UpdatePlacement::kAfter) const {
    CompileOptions options;
    options.batch = 2;
    options.length = 33;
    options.precision = Precision::kBF16;
    options.optimizer = {.weight_decay = 0.1, .max_grad_norm = 0.5};
    options.master_weights = master;
    options.update_placement = placement;
    options.staging = Bytes(4096);  // several pieces a tensor, and the micro-step has the peak
    return {model_, weights_, {.compile = options, .check_memory = true}};
  }
  std::vector<float> losses(TrainingRun& run, int64_t updates) const {
    std::vector<float> losses;
    for (int64_t update = 0; update < updates; ++update) {
      const Batch batch = random_batch(2, 33, model_.vocabulary, 11, update, update * 2);
      losses.push_back(static_cast<float>(run.update(std::span(&batch, 1), 3e-3f).loss));
    }
    return losses;
  }

  Model model_;
  ParameterFiles weights_;
};

TEST_P(MasterForms, HaveTheSameBits) {
  TrainingRun full = run(MasterWeights::kFull), split = run(MasterWeights::kSplit),
              inside = run(MasterWeights::kSplit, UpdatePlacement::kInBackward);
  for (const ParameterSpec& parameter : model_.parameters)
    ASSERT_TRUE(full.weight(parameter.name) == split.weight(parameter.name))
        << parameter.name << " as loaded";
  const std::vector<float> expected = losses(full, 8);
  EXPECT_TRUE(expected == losses(split, 8));
  EXPECT_TRUE(expected == losses(inside, 8));
  int64_t wide = 0;  // masters that are no bf16 number: the low halves carry something
  for (const ParameterSpec& parameter : model_.parameters) {
    const std::vector<float> weight = full.weight(parameter.name);
    EXPECT_TRUE(weight == split.weight(parameter.name)) << parameter.name;
    EXPECT_TRUE(weight == inside.weight(parameter.name)) << parameter.name;
    for (const char* prefix : {"", "m.", "v."})
      EXPECT_TRUE(full.bytes(prefix + parameter.name) == split.bytes(prefix + parameter.name))
          << prefix << parameter.name;
    for (float value : weight) wide += (std::bit_cast<uint32_t>(value) & 0xFFFF) != 0 ? 1 : 0;
  }
  EXPECT_GT(wide, 1000);
}

TEST_P(MasterForms, SplitTakesTwoBytesLess) {
  int64_t elements = 0;
  for (const ParameterSpec& parameter : model_.parameters) elements += parameter.shape.elements();
  TrainingRun full = run(MasterWeights::kFull), split = run(MasterWeights::kSplit);
  const auto masters = [](const Plan& plan) {
    int64_t bytes = 0;
    for (const PlanTensor& tensor : plan.tensors)
      if (tensor.category == "master_weights" && tensor.storage == "state")
        bytes += tensor.shape.bytes(tensor.dtype).value;
    return bytes;
  };
  EXPECT_EQ(masters(full.plan()), 4 * elements);
  EXPECT_EQ(masters(split.plan()), 2 * elements);
  // Tensors are placed at multiples of 64 bytes.
  const int64_t saved =
      full.plan().memories.at(0).arena_bytes.value - split.plan().memories.at(0).arena_bytes.value;
  EXPECT_NEAR(static_cast<double>(saved), 2.0 * static_cast<double>(elements),
              64.0 * static_cast<double>(model_.parameters.size()));
}

INSTANTIATE_TEST_SUITE_P(Families, MasterForms, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace snug
