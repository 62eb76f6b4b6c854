#include "planner/two_passes.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "planner/random_chain_test.h"

namespace snug::planner {
namespace {

TEST(PlanSolver, EqualsExhaustiveSearch) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Chain chain = random_chain(random, seed % 2 == 0 ? 12 : 1000);
    chain.backward_twice = seed % 3 != 0;
    expect_equal_to_exhaustive_search<PlanSolver>(chain);
  }
}

TEST(PlanSolver, TwoPassesNeedEverythingSavedAtEveryBlock) {
  Chain chain;
  chain.modes = {{.saved = Bytes(10), .seconds = 0, .moments = {{Bytes(10), Bytes(12), Bytes(12)}}},
                 {.saved = Bytes(1), .seconds = 1, .moments = {{Bytes(10), Bytes(14), Bytes(14)}}}};
  chain.lists = {{0, 1}};
  chain.blocks.assign(3, {.list = 0, .fixed = {}});
  chain.head = Bytes(1);
  EXPECT_EQ(PlanSolver(chain).smallest_budget(), Bytes(15));  // in the middle block: 1 saved before it, 14
  chain.backward_twice = true;
  // Three times the second mode: 3 saved and 13 more in a backward. The first mode adds 2 in a backward.
  EXPECT_EQ(PlanSolver(chain).smallest_budget(), Bytes(16));
  EXPECT_EQ(PlanSolver(chain).best(Bytes(32))->seconds, 0);
  EXPECT_EQ(PlanSolver(chain).best(Bytes(31))->seconds, 2);
}

// So many excesses that not each can be a level.
TEST(PlanSolver, BoundIsBelowEveryPlanOfALongChain) {
  std::mt19937 random(5);
  Chain chain;
  chain.backward_twice = true;
  chain.lists.resize(1);
  for (int32_t mode = 0; mode < 80; ++mode) {
    const int64_t saved = 100 + mode * 40, most = saved + static_cast<int64_t>(random() % 4000);
    chain.modes.push_back({.saved = Bytes(saved),
                           .seconds = static_cast<double>((80 - mode) * (80 - mode)) / 100,
                           .moments = {{Bytes(saved), Bytes(most), Bytes(most)}}});
    chain.lists[0].push_back(mode);
  }
  chain.blocks.assign(40, {.list = 0, .fixed = {}});
  chain.step_seconds = 1000;
  const PlanSolver solver(chain);
  EXPECT_FALSE(solver.exact());
  double last = std::numeric_limits<double>::infinity();
  const std::vector<ChainSolver::Step> steps = solver.frontier();
  for (size_t step = 0; step < steps.size(); ++step) {
    EXPECT_LT(steps[step].seconds, last);
    last = steps[step].seconds;
    if (step % 50 == 0) {
      EXPECT_LE(solver.best(steps[step].budget)->seconds, last + 1e-9);
    }
  }
  for (int trial = 0; trial < 10; ++trial) {
    std::vector<int32_t> modes;
    for (size_t block = 0; block < 40; ++block) modes.push_back(static_cast<int32_t>(random() % 80));
    const ChainPlan plan = evaluate(chain, modes);
    if (plan.needed < solver.smallest_budget()) continue;
    EXPECT_LE(solver.bound_seconds(plan.needed), plan.seconds);
    const ChainPlan best = solver.best(plan.needed).value();
    EXPECT_LE(best.needed, plan.needed);
    EXPECT_LE(best.seconds, plan.seconds);
    EXPECT_LE((best.seconds - solver.bound_seconds(plan.needed)) / chain.step_seconds, 0.02);
  }
}

}  // namespace
}  // namespace snug::planner
