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

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "compile/pipeline.h"
#include "compile/search_memory.h"
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

// The same with its layout, before the plan is written down: all that a comparison asks for.
struct BudgetDraft {
  Draft draft;
  layout::Solution layout;
  Retentions retentions;
  bool fits = false;
  double slowdown = 0;
  std::optional<double> gap;
  const CompileReport& report() const { return draft.report; }
};
// Its graphs and the plan, judged: a draft that is only compared is not.
BudgetPlan finish(BudgetDraft draft, const Target& target);

// Plans of one run at any budget. Blocks are priced once, at the first budget that keep-all does not fit.
class BudgetSearch {
 public:
  // `options.recompute` is replaced by what is asked for below. Searches with one memory share what they work out. Throws as compile()
  // does.
  BudgetSearch(std::shared_ptr<SearchMemory> memory, const CompileOptions& options);
  // With a memory of its own; `model` and `target` must outlive the search.
  BudgetSearch(const Model& model, const CompileOptions& options, const Target& target)
      : BudgetSearch(std::make_shared<SearchMemory>(model, target), options) {}

  // With everything kept, without a layout: its arena is the lower bound.
  const CompileReport& keep_all() const { return keep_all_; }
  // What its layout needs; remembered.
  Bytes keep_all_arena();
  // The plan that `policy` finds for an arena of at most `arena_budget`. Where none fits, the smallest that it found.
  BudgetPlan within(Bytes arena_budget, const RecomputePolicy& policy);
  // The plan with the smallest arena that policy optimal finds.
  BudgetPlan smallest();
  // Its arena; remembered.
  Bytes smallest_arena();

  // within() in parts: the plan that fits, if there is one; and the smallest that the policy found.
  std::optional<BudgetDraft> fitting(Bytes arena_budget, const RecomputePolicy& policy);
  BudgetDraft smallest_of(const RecomputePolicy& policy, Bytes arena_budget);
  // No plan of policy optimal that fits is faster. Prices the blocks unless everything may fit.
  double bound_seconds(Bytes arena_budget);
  // What the smallest plan needs at least; much nearer to it once the blocks were priced.
  Bytes smallest_bound(const RecomputePolicy& policy) const;
  bool was_priced() const { return smallest_.has_value(); }
  void price();

  bool is_priced() const { return planner_ != nullptr; }
  // Lets go of the priced blocks; the next call that needs them asks the memory for them, or prices them again. Those that ask for the
  // smallest plan of policy optimal do not.
  void forget_prices() { planner_.reset(); }

  // Without a layout: `arena` is the most that is live.
  struct Outcome {
    Bytes arena;
    double update_seconds = 0;
    bool fits = false;  // of estimate()
  };
  // What within() would make of the run, before it is compiled and laid out: the planner's own numbers.
  Outcome estimate(Bytes arena_budget, const RecomputePolicy& policy);
  // What a policy that needs no budget makes of the run.
  Outcome outcome(const RecomputePolicy& policy);

 private:
  planner::Planner& planner();
  Bytes outside(Graph micro_step, const planner::Finish& finish) const;
  BudgetDraft laid_out(Draft draft, Bytes arena_budget) const;
  BudgetDraft drafted_with(const Retentions& retentions, Bytes arena_budget) const;
  BudgetDraft drafted_smallest(Bytes arena_budget) const;
  BudgetDraft drafted_by(const RecomputePolicy& policy, Bytes arena_budget) const;
  std::optional<BudgetDraft> optimal(Bytes arena_budget);
  std::optional<BudgetDraft> greedy(Bytes arena_budget, const RecomputePolicy& policy);
  std::vector<planner::Droppable> order_of(const RecomputePolicy& policy);

  std::shared_ptr<SearchMemory> memory_;
  const Model& model_;
  const Target& target_;
  CompileOptions options_;
  const CompileReport& keep_all_;
  Bytes other_phases_;  // the largest peak of a phase that is not the micro-step
  std::optional<Bytes> keep_all_arena_, smallest_arena_;
  std::shared_ptr<planner::Planner> planner_;
  // Of the plans that may need the fewest bytes, and what is live in them at least; none before blocks were priced.
  struct Smallest {
    std::vector<Retentions> retentions;
    Bytes live;
  };
  std::optional<Smallest> smallest_;
};

}  // namespace snug
