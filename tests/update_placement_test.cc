// The update inside the backward: the bits of the update after it, fewer bytes, and a stop before the first block with a gradient
// that is not finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/errors.h"
#include "plan/check.h"
#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

constexpr int64_t kBatch = 2, kLength = 33, kUpdates = 4;
constexpr float kRate = 3e-3f;

struct Case {
  std::string family;
  Precision precision = Precision::kF32;
  bool tied = true;
};

class UpdatePlacementRuns : public testing::TestWithParam<Case> {
 protected:
  UpdatePlacementRuns()
      : model_(GetParam().family == "gpt2" ? tiny_gpt2({.blocks = 3, .tied = GetParam().tied})
                                           : tiny_llama({.blocks = 3, .tied = GetParam().tied})),
        weights_(ParameterFiles::from_scratch(model_, 7)) {}

  CompileOptions options(UpdatePlacement placement, double max_grad_norm) const {
    CompileOptions options;
    options.batch = kBatch;
    options.length = kLength;
    options.precision = GetParam().precision;
    options.optimizer = {.weight_decay = 0.1, .max_grad_norm = max_grad_norm};
    options.staging = Bytes(4096);  // the micro-step has the peak, as with models of real size
    options.update_placement = placement;
    return options;
  }
  TrainingRun run(UpdatePlacement placement, double max_grad_norm) const {
    return {model_, weights_, {.compile = options(placement, max_grad_norm)}};
  }
  Batch batch(int64_t update) const {
    return random_batch(kBatch, kLength, model_.vocabulary, 11, update, update * kBatch);
  }
  UpdateResult update(TrainingRun& run, int64_t number) const {
    const Batch one = batch(number);
    return run.update(std::span(&one, 1), kRate);
  }

  void expect_same_bits(TrainingRun& inside, TrainingRun& after) const {
    for (int64_t i = 0; i < kUpdates; ++i) {
      const UpdateResult a = update(inside, i), b = update(after, i);
      EXPECT_EQ(a.loss, b.loss) << i;
      EXPECT_EQ(a.control.norm, b.control.norm) << i;
      EXPECT_EQ(a.control.clip, b.control.clip) << i;
      EXPECT_EQ(a.control.applied, 1);
      EXPECT_EQ(b.control.applied, 1);
    }
    const auto one = inside.state(), other = after.state();
    ASSERT_EQ(one.size(), other.size());
    for (const auto& [name, bytes] : one) EXPECT_TRUE(bytes == other.at(name)) << name;
    for (const ParameterSpec& parameter : model_.parameters)
      EXPECT_EQ(inside.bytes("micro_step/moved." + parameter.name).at(0), std::byte{1}) << parameter.name;
  }

  Model model_;
  ParameterFiles weights_;
};

TEST_P(UpdatePlacementRuns, WithoutClippingTheBitsAreTheSame) {
  TrainingRun inside = run(UpdatePlacement::kInBackward, 0), after = run(UpdatePlacement::kAfter, 0);
  EXPECT_THAT(check_plan(inside.plan()), testing::IsEmpty());
  EXPECT_EQ(inside.plan().phase("update"), nullptr);
  expect_same_bits(inside, after);
}

TEST_P(UpdatePlacementRuns, WithClippingTheBitsAreTheSame) {
  TrainingRun inside = run(UpdatePlacement::kInBackward, 0.5), after = run(UpdatePlacement::kAfter, 0.5);
  EXPECT_THAT(check_plan(inside.plan()), testing::IsEmpty());
  expect_same_bits(inside, after);
  EXPECT_LT(update(inside, kUpdates).control.clip, 1) << "nothing was clipped";
}

TEST_P(UpdatePlacementRuns, RecomputedUnfusedAndWatched) {
  TrainingRun after = run(UpdatePlacement::kAfter, 0);
  for (int64_t i = 0; i < kUpdates; ++i) update(after, i);
  for (const bool plain : {false, true})
    for (const double limit :
         {0.0, 1e30}) {  // a limit that nothing reaches: clip = 1, and the backward runs twice
      CompileOptions changed = options(UpdatePlacement::kInBackward, limit);
      changed.recompute = {.kind = RecomputePolicy::Kind::kBlock};
      if (plain) changed.disabled_passes = {"fuse", "in_place"};
      TrainingRun inside(model_, weights_, {.compile = changed, .check_memory = true});
      for (int64_t i = 0; i < kUpdates; ++i) update(inside, i);
      EXPECT_TRUE(inside.state() == after.state()) << plain << limit;
    }
}

// Plants a value into a tensor as soon as the operation has made it.
class Planter : public ExecutionObserver {
 public:
  Planter(Executor& executor, std::string tensor, float value)
      : executor_(executor), tensor_(executor.tensor(tensor)), value_(value) {
    executor_.observe(this);
  }
  ~Planter() override { executor_.observe(nullptr); }
  void before_phase(const PlanPhase&, int64_t) override {}
  void before_operation(const PlanPhase&, const PlanOp&, int64_t, int64_t) override {}
  void after_operation(const PlanPhase&, const PlanOp& op, int64_t, int64_t) override {
    if (std::find(op.outputs.begin(), op.outputs.end(), tensor_) != op.outputs.end())
      executor_.write(tensor_, 0, std::as_bytes(std::span(&value_, 1)));
  }
  void after_phase(const PlanPhase&, int64_t) override {}
  void after_write(PlanTensorId) override {}

 private:
  Executor& executor_;
  PlanTensorId tensor_;
  float value_;
};

// Parameters of block `block`.
bool is_in_block(const std::string& parameter, int block) {
  return parameter.find(fmt::format(".{}.", block)) != std::string::npos;
}

TEST_P(UpdatePlacementRuns, StopsBeforeTheBlockWithAGradientThatIsNotFinite) {
  const auto bad = std::find_if(model_.parameters.begin(), model_.parameters.end(),
                                [](const ParameterSpec& p) { return is_in_block(p.name, 1); });
  ASSERT_NE(bad, model_.parameters.end());
  for (float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TrainingRun inside = run(UpdatePlacement::kInBackward, 0);
    ASSERT_EQ(update(inside, 0).control.applied, 1);
    const auto before = inside.state();
    UpdateResult result;
    {
      Planter planter(inside.executor(), "micro_step/d." + bad->name, value);
      result = update(inside, 1);
    }
    EXPECT_EQ(result.control.applied, 0);
    EXPECT_GT(result.gates_passed, 0) << "block 2 comes first";
    EXPECT_EQ(result.control.first_non_finite, static_cast<float>(bad - model_.parameters.begin()));
    const auto after = inside.state();
    for (const ParameterSpec& parameter : model_.parameters) {
      const bool written = is_in_block(parameter.name, 2);
      const bool may_be_written =
          written || (!is_in_block(parameter.name, 0) && !is_in_block(parameter.name, 1));
      for (const char* prefix : {"", "m.", "v.", "low."}) {
        const std::string name = prefix + parameter.name;
        if (!before.contains(name)) continue;
        if (written && std::string(prefix) == "m.") {
          EXPECT_FALSE(before.at(name) == after.at(name)) << name;
        } else if (!may_be_written) {
          EXPECT_TRUE(before.at(name) == after.at(name)) << name;
        }
      }
    }
  }
}

TEST_P(UpdatePlacementRuns, WithClippingOneGradientThatIsNotFiniteSkipsTheWholeUpdate) {
  TrainingRun inside = run(UpdatePlacement::kInBackward, 1);
  ASSERT_EQ(update(inside, 0).control.applied, 1);
  const auto before = inside.state();
  {
    Planter planter(inside.executor(), fmt::format("micro_step/d.{}.norm", model_.parameters[3].name),
                    std::numeric_limits<float>::infinity());
    const UpdateResult result = update(inside, 1);
    EXPECT_EQ(result.control.applied, 0);
    EXPECT_EQ(result.gates_passed, 0);
    EXPECT_EQ(result.control.first_non_finite, 3);
    EXPECT_TRUE(inside.state() == before);
  }
  EXPECT_EQ(update(inside, 1).control.applied, 1);
}

TEST_P(UpdatePlacementRuns, ALossThatIsNotFiniteSkipsTheWholeUpdate) {
  for (const double limit : {0.0, 1.0}) {
    TrainingRun inside = run(UpdatePlacement::kInBackward, limit);
    const std::string norm = model_.family == "gpt2" ? "transformer.ln_f.weight" : "model.norm.weight";
    const PlanTensor& planned = inside.plan().tensor(inside.executor().tensor(norm));
    const std::vector<std::byte> nan(static_cast<size_t>(dtype_bytes(planned.dtype)), std::byte{0xFF});
    inside.executor().write(inside.executor().tensor(norm), 0, nan);
    const auto before = inside.state();
    const UpdateResult result = update(inside, 0);
    EXPECT_TRUE(std::isnan(result.loss));
    EXPECT_EQ(result.control.applied, 0);
    EXPECT_EQ(result.gates_passed, 0);
    EXPECT_TRUE(inside.state() == before);
  }
}

// Most bytes of gradients that lie in the plan at one moment.
int64_t peak_gradient_bytes(const Plan& plan) {
  std::map<int32_t, const PlanTensor*> buffers;  // one tensor of each
  std::map<int32_t, std::pair<int64_t, int64_t>> lives;
  for (const PlanTensor& tensor : plan.tensors) {
    if (tensor.category != "gradients") continue;
    const auto [life, is_new] = lives.try_emplace(tensor.buffer, tensor.first, tensor.last);
    life->second = {std::min(life->second.first, tensor.first), std::max(life->second.second, tensor.last)};
    buffers[tensor.buffer] = &tensor;
  }
  int64_t most = 0;
  for (const auto& [at, life] : lives) {
    int64_t held = 0;
    for (const auto& [buffer, other] : lives)
      if (other.first <= life.first && life.first < other.second)
        held += buffers[buffer]->shape.bytes(buffers[buffer]->dtype).value;
    most = std::max(most, held);
  }
  return most;
}

TEST_P(UpdatePlacementRuns, OneBlocksGradientsLive) {
  int64_t all = 0, outside = 0, block = 0;
  for (const ParameterSpec& parameter : model_.parameters) {
    const int64_t bytes = parameter.shape.bytes(DType::kF32).value;
    all += bytes;
    if (is_in_block(parameter.name, 1)) block += bytes;
    if (!is_in_block(parameter.name, 0) && !is_in_block(parameter.name, 1) && !is_in_block(parameter.name, 2))
      outside += bytes;
  }
  // Few tokens, so that gradients and not activations decide what the peak is.
  const auto plan = [&](UpdatePlacement placement, double limit) {
    CompileOptions changed = options(placement, limit);
    changed.batch = 1;
    changed.length = 4;
    TrainingRun planned(model_, weights_, {.compile = changed});
    return planned.plan();
  };
  const int64_t embedding = model_.parameters.front().shape.bytes(DType::kF32).value;
  for (const double limit : {0.0, 1.0}) {
    const Plan after = plan(UpdatePlacement::kAfter, limit),
               inside = plan(UpdatePlacement::kInBackward, limit);
    EXPECT_EQ(peak_gradient_bytes(after), all);
    const int64_t most = peak_gradient_bytes(inside);
    // A tied embedding's gradient lives from the head to the end; an untied head's and embedding's die at once.
    EXPECT_LE(most, GetParam().tied ? embedding + block : std::max(block, outside)) << limit;
    const int64_t saved = after.memories.at(0).arena_bytes.value - inside.memories.at(0).arena_bytes.value;
    EXPECT_GT(saved, (all - most) / 2) << limit << ": of " << all - most << " bytes less of gradients";
  }
}

TEST_P(UpdatePlacementRuns, IsRefusedWithAccumulation) {
  CompileOptions changed = options(UpdatePlacement::kInBackward, 0);
  changed.accumulation = 2;
  try {
    TrainingRun refused(model_, weights_, {.compile = changed});
    FAIL() << "not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("found 2 micro-steps an update, expected 1"));
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, UpdatePlacementRuns,
                         testing::Values(Case{"gpt2"}, Case{"gpt2", Precision::kBF16}, Case{"llama"},
                                         Case{"llama", Precision::kBF16},
                                         Case{"llama", Precision::kF32, false}),
                         [](const auto& test) {
                           return fmt::format("{}_{}{}", test.param.family,
                                              precision_name(test.param.precision),
                                              test.param.tied ? "" : "_untied");
                         });

}  // namespace
}  // namespace snug
