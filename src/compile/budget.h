// compile/budget.h — the fastest plan of a run whose arena fits a number of bytes
//
// Why:      `--memory` names bytes; which values are kept for the backward and which are made again follows.
// Method:   1. compile keeping everything: where that fits, it is the answer;
//           2. otherwise the planner chooses retentions (planner/choose.h), which are compiled and laid out; the
//              arena alone judges. What it lies above the budget lowers the planner's budget, a few times;
//           3. policies `memory` and `heuristic` bisect how many values of their order are dropped.
// Proof:    `gap` holds the plan against the planner's lower bound on the seconds of every plan at this budget,
//           made of the same costs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "compile/pipeline.h"
#include "planner/choose.h"

namespace snug {

struct BudgetPlan {
  Compiled compiled;
  // Of the values of the differentiated micro-step; empty: everything is kept.
  Retentions retentions;
  // Whether the arena is at most the budget; where not, this is the smallest plan that was found.
  bool fits = false;
  // update_seconds / the keep-all plan's − 1.
  double slowdown = 0;
  // No plan of these techniques at this budget is faster by more than this fraction. Policy optimal alone.
  std::optional<double> gap;
};

// Plans of one run at any budget. Blocks are priced once, at the first budget that keep-all does not fit.
class BudgetSearch {
 public:
  // `model` and `target` must outlive the search; `options.recompute` is replaced by what is asked for below.
  // Throws as compile() does.
  BudgetSearch(const Model& model, const CompileOptions& options, const Target& target);

  const CompileReport& keep_all() const { return keep_all_; }
  // The plan that `policy`, one that needs a budget, finds for an arena of at most `arena_budget`; InternalError for
  // another policy. Where none fits, the smallest that it found.
  BudgetPlan within(Bytes arena_budget, const RecomputePolicy& policy);
  // The plan with the smallest arena that policy optimal finds.
  BudgetPlan smallest();
  // Its arena; remembered.
  Bytes smallest_arena();
  bool is_priced() const { return planner_.has_value(); }
  // Gives back the memory of the priced blocks; the next call that needs them prices them again.
  void forget_prices() { planner_.reset(); }

  // What a policy that needs no budget makes of the run, without a layout: `arena` is the most that is live.
  struct Outcome {
    Bytes arena;
    double update_seconds = 0;
  };
  Outcome outcome(const RecomputePolicy& policy);

 private:
  planner::Planner& planner();
  Bytes outside(Graph micro_step, const planner::Finish& finish) const;
  BudgetPlan compiled_with(const Retentions& retentions, Bytes arena_budget) const;
  BudgetPlan optimal(Bytes arena_budget);
  BudgetPlan smallest_for(Bytes arena_budget);
  BudgetPlan greedy(Bytes arena_budget, const std::vector<planner::Droppable>& order);

  const Model& model_;
  CompileOptions options_;
  const Target& target_;
  CompileReport keep_all_;
  Bytes other_phases_;  // the largest peak of a phase that is not the micro-step
  std::optional<Bytes> smallest_arena_;
  std::optional<planner::Planner> planner_;
};

}  // namespace snug
