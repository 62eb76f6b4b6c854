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
//         A level is solved when first a budget could make its plan the best one, by a bound that takes some
//         microseconds: the fewest seconds where only (bytes saved of all) is limited, by one price of a byte.
// Bound:  a plan whose largest excess lies between two levels is at least as slow as the bound of the upper
//         level at the budget plus the distance of the two. The least of these holds for every plan.
// Source: the bound of a level: Everett (see chain.h); its price is found by walking the hull, as in Dinkelbach's
//         method.
// See:    two_passes_test.cc
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "planner/chain.h"

namespace snug::planner {

// The interface of ChainSolver, for chains of one backward pass and of two. Not for several threads at a time:
// questions fill in what answers them.
class PlanSolver {
 public:
  // Throws InternalError as ChainSolver does, and where modes of two backward passes use a link.
  explicit PlanSolver(Chain chain, std::span<const std::vector<int32_t>> known = {});

  const Chain& chain() const { return *chain_; }
  Bytes smallest_budget() const { return smallest_.needed; }
  std::optional<ChainPlan> best(Bytes budget) const;
  double bound_seconds(Bytes budget) const;
  std::vector<ChainSolver::Step> frontier() const;
  // Whether best() and smallest_budget() are optimal; with one backward pass the latter always is.
  bool exact() const;

 private:
  struct Level {
    Bytes excess;
    Bytes below;                                // how far the next smaller level's excess is, less one byte
    Bytes smallest;                             // no budget below it fits a plan of this level
    mutable std::optional<ChainSolver> solver;  // where it was needed
  };
  // A run that may begin at some position.
  struct LevelledRun {
    int32_t mode = 0;
    size_t end = 0;
    Bytes saved, need, excess;
    double seconds = 0;
  };
  void list_runs();
  void add_levels();
  ChainPlan smallest_of(Level& level) const;
  double quick_bound(const Level& level, Bytes budget) const;
  const ChainSolver& solver(const Level& level) const;

  std::shared_ptr<const Chain> chain_;
  std::optional<ChainSolver> single_;           // with one backward pass
  std::vector<std::vector<LevelledRun>> runs_;  // with two, per position: by end, then by rising bytes
  std::vector<Level> levels_;                   // with two
  bool complete_ = true;                        // every excess of a run is a level
  mutable std::vector<size_t> solved_;          // levels that have a solver, used last last
  // With two passes, where a level may ask more of a plan than it needs: those that were given and those that were found, bytes rising,
  // seconds falling.
  mutable std::vector<ChainPlan> known_;
  ChainPlan smallest_;
};

}  // namespace snug::planner
