// planner/random_chain_test.h — small chains at random and the exhaustive search that solvers are held against
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "planner/chain.h"

namespace snug::planner {

// Every list of runs that covers the chain.
inline void enumerate(const Chain& chain, size_t position, std::vector<int32_t>& modes,
                      std::vector<ChainPlan>& plans) {
  if (position == chain.blocks.size()) {
    plans.push_back(evaluate(chain, modes));
    return;
  }
  for (int32_t mode : chain.lists[static_cast<size_t>(chain.blocks[position].list)]) {
    const size_t end = position + chain.modes[static_cast<size_t>(mode)].moments.size();
    if (end > chain.blocks.size()) continue;
    modes.push_back(mode);
    enumerate(chain, end, modes, plans);
    modes.pop_back();
  }
}

inline std::vector<ChainPlan> all_plans(const Chain& chain) {
  std::vector<ChainPlan> plans;
  std::vector<int32_t> modes;
  enumerate(chain, 0, modes, plans);
  return plans;
}

// At most 4 blocks, 6 modes a list and spans of 3. With `link` about half of the modes send bytes over it.
inline Chain random_chain(std::mt19937& random, int64_t most_bytes, bool link = false) {
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Chain chain;
  const size_t lists = static_cast<size_t>(draw(1, 3));
  for (size_t list = 0; list < lists; ++list) {
    chain.lists.emplace_back();
    const int64_t count = draw(1, 6);
    for (int64_t index = 0; index < count; ++index) {
      Mode mode{
          .saved = Bytes(draw(0, most_bytes)), .seconds = static_cast<double>(draw(0, 50)), .moments = {}};
      const int64_t span = index == 0 ? 1 : draw(1, 3);
      for (int64_t block = 0; block < span; ++block)
        mode.moments.push_back(
            {Bytes(draw(0, most_bytes)), Bytes(draw(0, 2 * most_bytes)), Bytes(draw(0, 2 * most_bytes))});
      chain.lists.back().push_back(static_cast<int32_t>(chain.modes.size()));
      chain.modes.push_back(mode);
    }
  }
  const int64_t length = draw(1, 4);
  for (int64_t block = 0; block < length; ++block)
    chain.blocks.push_back(
        {.list = static_cast<int32_t>(draw(0, static_cast<int64_t>(lists) - 1)),
         .fixed = {Bytes(draw(0, most_bytes)), Bytes(draw(0, most_bytes)), Bytes(draw(0, most_bytes))}});
  chain.head = Bytes(draw(0, 2 * most_bytes));
  chain.floor = Bytes(draw(0, 4 * most_bytes));
  chain.step_seconds = 100;
  if (!link) return chain;
  for (Mode& mode : chain.modes) mode.link = Bytes(std::max<int64_t>(0, draw(-most_bytes, most_bytes)));
  for (ChainBlock& block : chain.blocks) block.link = Bytes(draw(0, most_bytes));
  return chain;
}

// Holds a solver against every plan of its chain: smallest budget, best plan and bound at the budgets where plans begin to fit.
template <typename Solver>
void expect_equal_to_exhaustive_search(const Chain& chain) {
  const std::vector<ChainPlan> plans = all_plans(chain);
  Bytes smallest = plans.front().needed;
  for (const ChainPlan& plan : plans) smallest = std::min(smallest, plan.needed);
  const Solver solver(chain);
  ASSERT_TRUE(solver.exact());
  EXPECT_EQ(solver.smallest_budget(), smallest);
  EXPECT_FALSE(solver.best(smallest - Bytes(1)).has_value());
  for (size_t which = 0; which < plans.size(); which += 1 + plans.size() / 40)
    for (int64_t beside : {-1, 0, 1}) {
      const Bytes budget = plans[which].needed + Bytes(beside);
      if (budget < smallest) continue;
      double fewest = std::numeric_limits<double>::infinity();
      for (const ChainPlan& plan : plans)
        if (plan.needed <= budget) fewest = std::min(fewest, plan.seconds);
      const std::optional<ChainPlan> best = solver.best(budget);
      ASSERT_TRUE(best.has_value());
      EXPECT_EQ(best->seconds, fewest) << "budget " << budget.value;
      EXPECT_LE(best->needed, budget);
      EXPECT_LE(solver.bound_seconds(budget), fewest);
    }
}

}  // namespace snug::planner
