#include "planner/chain.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <limits>
#include <random>

#include "base/errors.h"
#include "planner/random_chain_test.h"

namespace snug::planner {
namespace {

// A block of tensors of which every subset may be kept; dropping more costs seconds and working set.
Chain subset_chain(size_t length, size_t most_modes) {
  const std::vector<int64_t> bytes = {768, 768, 2304, 768, 12, 768, 768, 3072, 3072, 1, 1};
  const std::vector<double> seconds = {0.1, 0.3, 2.4, 1.5, 1.5, 0.9, 0.3, 3.1, 0.4, 0.05, 0.05};
  Chain chain;
  chain.lists.resize(1);
  for (uint32_t kept = 0; kept < (1u << bytes.size()) && chain.modes.size() < most_modes; kept += 13) {
    Mode mode{.saved = Bytes(768), .seconds = 0, .moments = {}};
    int64_t dropped = 0;
    for (size_t tensor = 0; tensor < bytes.size(); ++tensor)
      if ((kept >> tensor) & 1) {
        mode.saved += Bytes(bytes[tensor]);
      } else {
        mode.seconds += seconds[tensor];
        dropped += bytes[tensor];
      }
    mode.moments = {{mode.saved + Bytes(4000), mode.saved + Bytes(6000 + dropped / 2)}};
    chain.lists[0].push_back(static_cast<int32_t>(chain.modes.size()));
    chain.modes.push_back(mode);
  }
  for (size_t block = 0; block < length; ++block)
    chain.blocks.push_back(
        {.list = 0,
         .fixed = {Bytes(100000), Bytes(100000 + 900 * static_cast<int64_t>(length - 1 - block))}});
  chain.head = Bytes(115000);
  chain.step_seconds = 35.0 * static_cast<double>(length);
  return chain;
}

TEST(ChainSolver, EqualsExhaustiveSearch) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    expect_equal_to_exhaustive_search<ChainSolver>(random_chain(random, seed % 2 == 0 ? 12 : 1000000));
  }
}

TEST(ChainSolver, EqualsExhaustiveSearchWithALink) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    expect_equal_to_exhaustive_search<ChainSolver>(random_chain(random, seed % 2 == 0 ? 12 : 1000000, true));
  }
}

// Too long to be solved exactly: the bounds are held against plans drawn at random.
TEST(ChainSolver, BoundIsBelowEveryPlanOfALongChain) {
  std::mt19937 random(1);
  Chain chain;
  chain.lists.resize(1);
  for (int32_t mode = 0; mode < 128; ++mode) {  // on a convex curve, so that no mode is as good as another
    const int64_t saved = 100'000 + mode * 40'000 + static_cast<int64_t>(random() % 1000);
    const auto most = saved + static_cast<int64_t>(random() % 4'000'000);
    chain.modes.push_back({.saved = Bytes(saved),
                           .seconds = static_cast<double>((128 - mode) * (128 - mode)) / 100,
                           .moments = {{Bytes(saved), Bytes(most)}}});
    chain.lists[0].push_back(mode);
  }
  chain.blocks.assign(40, {.list = 0, .fixed = {}});
  const ChainSolver solver(chain);
  EXPECT_FALSE(solver.exact());
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<int32_t> modes;
    for (size_t block = 0; block < chain.blocks.size(); ++block)
      modes.push_back(
          std::uniform_int_distribution<int32_t>(0, static_cast<int32_t>(chain.modes.size()) - 1)(random));
    const ChainPlan plan = evaluate(chain, modes);
    EXPECT_LE(solver.bound_seconds(plan.needed), plan.seconds);
    EXPECT_LE(solver.best(plan.needed)->seconds, plan.seconds);
  }
}

TEST(ChainSolver, IsMonotoneAndFitsAndIsNearItsBound) {
  for (size_t length : {size_t{12}, size_t{30}, size_t{100}}) {
    const Chain chain = subset_chain(length, 128);
    const auto start = std::chrono::steady_clock::now();
    const ChainSolver solver(chain);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const Bytes smallest = solver.smallest_budget();
    const Bytes largest = solver.frontier().back().budget;
    double last = std::numeric_limits<double>::infinity();
    double widest = 0, bounds = 0;
    for (int step = 0; step <= 300; ++step) {
      const Bytes budget = smallest + Bytes((largest - smallest).value / 300 * step);
      const std::optional<ChainPlan> plan = solver.best(budget);
      ASSERT_TRUE(plan.has_value());
      EXPECT_LE(plan->needed, budget);
      EXPECT_LE(plan->seconds, last);
      last = plan->seconds;
      if (step % 30 != 0) continue;
      const auto begin = std::chrono::steady_clock::now();
      const double bound = solver.bound_seconds(budget);
      bounds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 11;
      EXPECT_LE(bound, plan->seconds);
      widest = std::max(widest, (plan->seconds - bound) / (chain.step_seconds + plan->seconds));
    }
    EXPECT_LE(widest, 0.01) << length << " blocks";
    std::cout << length << " blocks, " << chain.modes.size() << " modes: solved in " << seconds
              << " s, a bound in " << bounds << " s, widest gap " << 100 * widest << " %\n";
  }
}

TEST(ChainSolver, KnownPlansAreNeverBeaten) {
  const Chain chain = subset_chain(100, 128);
  std::mt19937 random(7);
  std::vector<std::vector<int32_t>> known;
  for (int32_t mode = 0; mode < static_cast<int32_t>(chain.modes.size()); ++mode)
    known.emplace_back(chain.blocks.size(), mode);
  const ChainSolver solver(chain, known);
  for (const std::vector<int32_t>& modes : known) {
    const ChainPlan plan = evaluate(chain, modes);
    EXPECT_LE(solver.best(plan.needed)->seconds, plan.seconds);
  }
  const std::vector<ChainSolver::Step> steps = solver.frontier();
  for (size_t step = 1; step < steps.size(); ++step) {
    EXPECT_LT(steps[step - 1].budget, steps[step].budget);
    EXPECT_GT(steps[step - 1].seconds, steps[step].seconds);
  }
}

TEST(ChainSolver, HeadAndLateGradientsBind) {
  // Two modes: keep 10 bytes at once, or 1 byte for a second. Working sets are equal.
  Chain chain;
  chain.modes = {{.saved = Bytes(10), .seconds = 0, .moments = {{Bytes(10), Bytes(12)}}},
                 {.saved = Bytes(1), .seconds = 1, .moments = {{Bytes(10), Bytes(12)}}}};
  chain.lists = {{0, 1}};
  chain.blocks.assign(4, {.list = 0, .fixed = {Bytes(0), Bytes(0)}});
  chain.head = Bytes(5);
  EXPECT_EQ(ChainSolver(chain).best(Bytes(45))->seconds, 0);  // 40 saved + head
  EXPECT_EQ(ChainSolver(chain).best(Bytes(44))->seconds, 1);
  EXPECT_EQ(ChainSolver(chain).smallest_budget(), Bytes(15));  // 3 saved under the last block's 12
  // Gradients of later blocks that fill the first block's backward leave no choice that helps.
  chain.blocks[0].fixed.backward = Bytes(100);
  EXPECT_EQ(ChainSolver(chain).smallest_budget(), Bytes(112));
  EXPECT_EQ(ChainSolver(chain).best(Bytes(112))->seconds, 0);
}

TEST(Evaluate, RefusesRunsThatDoNotCover) {
  Chain chain;
  chain.modes = {{.saved = Bytes(1), .seconds = 0, .moments = {{Bytes(1), Bytes(1)}, {Bytes(1), Bytes(1)}}}};
  chain.lists = {{0}};
  chain.blocks.assign(3, {.list = 0, .fixed = {}});
  EXPECT_THROW(evaluate(chain, std::vector<int32_t>{0}), InternalError);
  EXPECT_THROW(evaluate(chain, std::vector<int32_t>{0, 0}), InternalError);
  EXPECT_THROW(ChainSolver{chain}, InternalError);
}

}  // namespace
}  // namespace snug::planner
