// planner/two_passes.h — the chain's solver where the backward may run twice
//
// Why:    with clipping, an update inside the backward needs the norm first: the backward of all blocks runs
//         for the norm alone, then again. Until then everything that any block saved is held, so a block's
//         backward is not above what the runs before it saved but above what all saved, and the chain's
//         recursion, which goes by the former, does not apply.
// Method: the moments of the backward for the norm together need  (bytes saved of all) + (the largest excess
//         of a run), see norm_excess. For a given largest excess x that is a chain of one backward whose head
//         holds x at least and whose runs are those of excess <= x. A level is such an x: all values that
//         runs have, or as many of them as there is time for. The best plan is the best of all levels'.
// Bound:  a plan whose largest excess lies between two levels is at least as slow as the bound of the upper
//         level at the budget plus the distance of the two. The least of these holds for every plan.
// See:    two_passes_test.cc
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/chain.h"

namespace snug::planner {

// The interface of ChainSolver, for chains of one backward pass and of two.
class PlanSolver {
 public:
  explicit PlanSolver(Chain chain, std::span<const std::vector<int32_t>> known = {});

  const Chain& chain() const { return chain_; }
  Bytes smallest_budget() const { return smallest_.needed; }
  std::optional<ChainPlan> best(Bytes budget) const;
  double bound_seconds(Bytes budget) const;
  std::vector<ChainSolver::Step> frontier() const;
  // Whether best() and smallest_budget() are optimal; with one backward pass the latter always is.
  bool exact() const;

 private:
  struct Level {
    ChainSolver solver;
    Bytes below;  // how far the next smaller level's excess is, less one byte
  };
  void add_levels(std::span<const std::vector<int32_t>> known);

  Chain chain_;
  std::vector<Level> levels_;
  bool complete_ = true;          // every excess of a run is a level
  std::vector<ChainPlan> known_;  // with two passes: a level may ask more of a plan than it needs
  ChainPlan smallest_;
};

}  // namespace snug::planner
