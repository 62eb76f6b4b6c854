// compile/outer_search.h — the fastest of several variants of one run whose arena fits a number of bytes
//
// Why:      where the update stands, how moments are stored or how many rows of logits exist at a time changes the
//           whole problem that the planner solves: what blocks may hold, and what a step takes with everything kept.
//           There are few such choices, so each combination is a variant, and the best of all their plans is taken.
// Method:   1. compile each variant keeping everything: its seconds are a bound that no plan of it goes below;
//           2. from the least bound up, ask for the plan within the budget (budget.h), until the next bound is above
//              the best plan that was found; a variant whose own bound at this budget is above it is not compiled;
//           3. where nothing fits, lay out the smallest plans, those that need the fewest bytes at least first, until the
//              next one's least is above the smallest that was found.
//           So the answer is the fastest plan of any variant, and of equal ones the earliest variant's: whoever lists
//           the variants lists the more exact ones first. A larger budget never has a slower answer, for that holds
//           for each variant.
// Proof:    `gap` holds for all variants: it is against the least of their bounds.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "compile/budget.h"

namespace snug {

struct Variant {
  CompileOptions options;
  // Whether smallest() asks it: of variants of which one is known to need less than the other, one is enough.
  bool may_be_smallest = true;
};

// The slowdown of `plan` is against the fastest variant with everything kept.
struct VariantPlan {
  size_t variant = 0;
  BudgetPlan plan;
};

// The same without the plan: for comparisons.
struct VariantOutcome {
  size_t variant = 0;
  CompileReport report;
  bool fits = false;
};

class OuterSearch {
 public:
  // Whether the blocks of a variant that lost stay priced in memory, for many budgets of one run.
  enum class Prices : uint8_t { kForgetOfLosers, kKeep };

  // At least one variant, with batches and accumulations that make updates of the same samples. Searches with one memory share what
  // they work out. Throws as compile() does.
  OuterSearch(const std::shared_ptr<SearchMemory>& memory, std::span<const Variant> variants, Prices prices);
  // With a memory of its own; `model` and `target` must outlive the search.
  OuterSearch(const Model& model, std::span<const Variant> variants, const Target& target, Prices prices)
      : OuterSearch(std::make_shared<SearchMemory>(model, target), variants, prices) {}

  size_t variants() const { return searches_.size(); }
  const CompileReport& keep_all(size_t variant) const { return searches_.at(variant)->keep_all(); }
  // The fastest variant with everything kept, and the seconds of its update.
  size_t fastest() const { return by_bound_.front(); }
  double unlimited_seconds() const { return keep_all(fastest()).update_seconds; }

  // The fastest plan for an arena of at most `arena_budget`. Policies that need no budget are compiled as they are. Where
  // nothing fits, the smallest plan that was found.
  VariantPlan within(Bytes arena_budget, const RecomputePolicy& policy);
  VariantOutcome outcome(Bytes arena_budget, const RecomputePolicy& policy);
  // About the same by the planner's own numbers, without a plan that is compiled and laid out.
  BudgetSearch::Outcome estimate(Bytes arena_budget, const RecomputePolicy& policy);
  // The arena of the smallest plan that policy optimal finds of any variant: within() finds one of that size.
  Bytes smallest_arena();

  // That plan.
  VariantPlan smallest();

  // The search of one variant.
  BudgetSearch& search(size_t variant) { return *searches_.at(variant); }

 private:
  struct Found {
    size_t variant = 0;
    BudgetDraft draft;
  };
  Found find(Bytes arena_budget, const RecomputePolicy& policy);
  std::optional<Found> find_fitting(Bytes arena_budget, const RecomputePolicy& policy);
  Found find_smallest(Bytes arena_budget, const RecomputePolicy& policy);
  // Calls try_smallest(variant) for variants whose smallest plan may be below limit(), that of the least bytes first.
  void for_each_smallest(const RecomputePolicy& policy, const std::function<Bytes()>& limit,
                         const std::function<void(size_t)>& try_smallest);
  void forget(size_t variant);
  // Whether one of the variants that smallest() asks answers for this one as well.
  bool is_never_smallest(size_t variant) const;

  std::shared_ptr<SearchMemory> memory_;
  std::vector<Variant> variants_;
  Prices prices_;
  std::vector<std::unique_ptr<BudgetSearch>> searches_;
  std::vector<size_t> by_bound_;  // variants by rising keep-all seconds
};

}  // namespace snug
