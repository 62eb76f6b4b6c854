#include "train/cost_check.h"

#include <gtest/gtest.h>

#include <vector>

namespace snug {
namespace {

constexpr int kUpdatesInARow = 5;

// Two micro-steps of ten seconds and a second of attention each, and an update of four seconds.
Plan small_plan() {
  const auto op = [](std::string kind, double seconds) {
    PlanOp made;
    made.op = std::move(kind);
    made.seconds = seconds;
    return made;
  };
  Plan plan;
  PlanTensor starts;
  starts.dtype = DType::kI32;
  plan.tensors = {starts};
  PlanPhase micro_step, update, evaluate;
  micro_step.repeats = 2;
  micro_step.inputs = {PlanTensorId(size_t{0})};
  micro_step.ops = {op("linear", 4), op("attention", 1), op("linear", 6)};
  micro_step.ops[1].inputs = micro_step.inputs;
  update.ops = {op("adamw", 4)};
  evaluate.repeats = 0;
  evaluate.ops = {op("linear", 100)};
  plan.phases = {micro_step, update, evaluate};
  return plan;
}

// What an update of that plan measured.
std::vector<Executor::OperationTime> update_of(double linear, double attention, double adamw,
                                               int64_t micro_steps = 2) {
  return {{.op = "linear", .count = 2 * micro_steps, .seconds = linear},
          {.op = "attention", .count = micro_steps, .seconds = attention},
          {.op = "adamw", .count = 1, .seconds = adamw},
          {.op = "save_only", .count = 0}};
}

TEST(CostCheck, NeedsFiveFasterUpdatesInARow) {
  CostCheck check(small_plan());
  for (int update = 1; update < kUpdatesInARow; ++update)
    EXPECT_FALSE(check.after_update(update_of(15, 2, 3))) << update;
  EXPECT_FALSE(check.after_update(update_of(20, 2, 4)));  // one as planned begins the count anew
  for (int update = 1; update < kUpdatesInARow; ++update)
    EXPECT_FALSE(check.after_update(update_of(15, 2, 3))) << update;
  const auto found = check.after_update(update_of(16, 2, 3));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->planned_seconds, 24);
  EXPECT_EQ(found->measured_seconds, 19);
}

TEST(CostCheck, TakesFifteenPercentForAgreement) {
  CostCheck near(small_plan()), slower(small_plan());
  for (int update = 0; update < 3 * kUpdatesInARow; ++update) {
    EXPECT_FALSE(near.after_update(update_of(17.5, 2, 3.5)));
    EXPECT_FALSE(slower.after_update(update_of(200, 20, 40)));
  }
}

TEST(CostCheck, CountsNothingThatDependsOnTheData) {
  CostCheck check(small_plan());
  for (int update = 0; update < 3 * kUpdatesInARow; ++update)
    EXPECT_FALSE(check.after_update(update_of(20, 0.01, 4)));  // short documents
}

TEST(CostCheck, PassesOverUpdatesWithFewerMicroSteps) {
  CostCheck check(small_plan());
  for (int update = 1; update < kUpdatesInARow; ++update)
    EXPECT_FALSE(check.after_update(update_of(15, 2, 3)));
  EXPECT_FALSE(check.after_update(update_of(10, 1, 4, 1)));  // the last of an epoch says nothing
  EXPECT_TRUE(check.after_update(update_of(15, 2, 3)));
}

}  // namespace
}  // namespace snug
