#include "compile/budget.h"

#include <gtest/gtest.h>

#include "backends/null/null_target.h"
#include "compile/example_test.h"

namespace snug {
namespace {

constexpr RecomputePolicy kOptimal{.kind = RecomputePolicy::Kind::kOptimal};

struct Case {
  const char* family;
  UpdatePlacement placement = UpdatePlacement::kAfter;
  double max_grad_norm = 1;
  int64_t accumulation = 1;
  Precision precision = Precision::kF32;
};

class Budget : public testing::TestWithParam<Case> {
 protected:
  Budget() : model_(six_blocks(GetParam().family)), search_(model_, options(), target_) {}

  static CompileOptions options() {
    CompileOptions options;
    options.batch = 4;
    options.length = 64;
    options.accumulation = GetParam().accumulation;
    options.precision = GetParam().precision;
    options.update_placement = GetParam().placement;
    options.optimizer.max_grad_norm = GetParam().max_grad_norm;
    return options;
  }

  Model model_;
  NullTarget target_;
  BudgetSearch search_;
};

TEST_P(Budget, RoomForEverythingKeepsEverything) {
  const BudgetPlan plan = search_.within(search_.keep_all_arena(), kOptimal);
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.compiled.report.arena, search_.keep_all_arena());
  EXPECT_EQ(plan.compiled.report.recompute_flops, search_.keep_all().recompute_flops);
  EXPECT_EQ(plan.slowdown, 0);
  EXPECT_EQ(plan.gap, 0);
}

// A smaller budget never gets a faster plan, a larger one never a slower plan (a solver's rounding must not show), and no
// named policy that fits is faster.
TEST_P(Budget, PlansFitAndAreMonotoneAndBeatNamedPolicies) {
  std::vector<BudgetSearch::Outcome> named;
  for (const char* policy :
       {"none", "block", "uniform:2", "uniform:3", "selective:norm", "selective:attention,activation"})
    named.push_back(search_.outcome(parse_recompute_policy(policy)));
  const Bytes low = search_.smallest().compiled.report.arena, high = search_.keep_all_arena();
  ASSERT_LT(low, high);
  constexpr int64_t kBudgets = 12;
  double slowest = std::numeric_limits<double>::infinity();
  for (int64_t step = 0; step <= kBudgets; ++step) {
    const Bytes budget = low + Bytes((high - low).value * step / kBudgets);
    SCOPED_TRACE(budget.value);
    const BudgetPlan plan = search_.within(budget, kOptimal);
    EXPECT_TRUE(plan.fits);
    EXPECT_LE(plan.compiled.report.arena, budget);
    const double seconds = plan.compiled.report.update_seconds;
    EXPECT_LE(seconds, slowest * (1 + 1e-9));
    slowest = seconds;
    ASSERT_TRUE(plan.gap.has_value());
    EXPECT_GE(*plan.gap, 0);
    EXPECT_LT(*plan.gap, 1);
    EXPECT_NEAR(plan.slowdown, seconds / search_.keep_all().update_seconds - 1, 1e-12);
    for (const BudgetSearch::Outcome& outcome : named)
      if (outcome.arena <= budget) {
        EXPECT_LE(seconds, outcome.update_seconds * (1 + 1e-9));
      }
  }
}

// Where a budget is tight, saved values, gradients and a block's working set fill the arena from the end of the forward to that of the
// backward.
TEST_P(Budget, LayoutsOfTightPlansLoseNextToNothing) {
  const Bytes low = search_.smallest_arena(), high = search_.keep_all_arena();
  for (int64_t step = 0; step <= 6; ++step) {
    const Bytes budget = low + Bytes((high - low).value * step / 12);
    const CompileReport report = search_.within(budget, kOptimal).compiled.report;
    EXPECT_LE(report.gap, step == 0 ? 0.002 : 0) << step << ": " << report.layout_order;
  }
}

TEST_P(Budget, BelowTheSmallestNothingFits) {
  const Bytes smallest = search_.smallest().compiled.report.arena;
  const BudgetPlan plan = search_.within(smallest - Bytes(1), kOptimal);
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.compiled.report.arena, smallest);
}

TEST_P(Budget, SimplePoliciesDropUntilItFits) {
  for (const char* name : {"memory", "heuristic"}) {
    SCOPED_TRACE(name);
    const RecomputePolicy policy = parse_recompute_policy(name);
    const Bytes least = search_.within(Bytes(0), policy).compiled.report.arena,
                most = search_.keep_all_arena();
    ASSERT_LT(least, most);
    for (int64_t share : {0, 1, 2, 3}) {
      const Bytes budget = least + Bytes((most - least).value * share / 4);
      const BudgetPlan plan = search_.within(budget, policy);
      EXPECT_TRUE(plan.fits) << budget.value;
      EXPECT_LE(plan.compiled.report.arena, budget);
      EXPECT_FALSE(plan.gap.has_value());
      const BudgetPlan best = search_.within(budget, kOptimal);
      EXPECT_LE(best.compiled.report.update_seconds, plan.compiled.report.update_seconds * (1 + 1e-9));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runs, Budget,
    testing::Values(Case{"gpt2"}, Case{"llama"}, Case{.family = "llama", .precision = Precision::kBF16},
                    Case{.family = "gpt2", .accumulation = 3},
                    Case{.family = "gpt2", .placement = UpdatePlacement::kInBackward, .max_grad_norm = 0}),
    [](const auto& test) {
      return fmt::format(
          "{}_{}_{}_{}", test.param.family, test.param.precision == Precision::kBF16 ? "bf16" : "f32",
          test.param.placement == UpdatePlacement::kAfter ? "after" : "in_backward", test.param.accumulation);
    });

}  // namespace
}  // namespace snug
