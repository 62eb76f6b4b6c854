#include "compile/outer_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/errors.h"

namespace snug {
namespace {

double seconds_of(const BudgetPlan& plan) { return plan.compiled.report.update_seconds; }

// Weights, masters and moments: held at every moment of every plan.
Bytes state_of(const CompileReport& report) {
  Bytes state;
  for (Category category : {Category::kWeights, Category::kMasterWeights, Category::kOptimizerState})
    state += report.peak.categories[static_cast<size_t>(category)];
  return state;
}

}  // namespace

OuterSearch::OuterSearch(const Model& model, std::span<const Variant> variants, const Target& target,
                         Prices prices)
    : model_(model), variants_(variants.begin(), variants.end()), target_(target), prices_(prices) {
  require(!variants_.empty(), "outer search: no variant");
  for (const Variant& variant : variants_)
    searches_.push_back(std::make_unique<BudgetSearch>(model_, variant.options, target_));
  by_bound_.resize(variants_.size());
  std::iota(by_bound_.begin(), by_bound_.end(), size_t{0});
  std::stable_sort(by_bound_.begin(), by_bound_.end(), [&](size_t a, size_t b) {
    return keep_all(a).update_seconds < keep_all(b).update_seconds;
  });
}

BudgetPlan OuterSearch::plan_of(size_t variant, Bytes arena_budget, const RecomputePolicy& policy) {
  if (needs_budget(policy)) return search(variant).within(arena_budget, policy);
  CompileOptions options = variants_[variant].options;
  options.recompute = policy;
  BudgetPlan plan;
  plan.compiled = compile(model_, options, target_);
  plan.fits = plan.compiled.report.arena <= arena_budget;
  return plan;
}

void OuterSearch::forget(size_t variant) {
  if (prices_ == Prices::kKeep || !search(variant).is_priced()) return;
  // What it cost to price is to answer this as well.
  if (variants_[variant].may_be_smallest) search(variant).smallest_arena();
  search(variant).forget_prices();
}

VariantPlan OuterSearch::within(Bytes arena_budget, const RecomputePolicy& policy) {
  // Where nothing fits, one of those is the answer; without one every variant is.
  const bool some_may_be_smallest =
      std::any_of(variants_.begin(), variants_.end(), [](const Variant& v) { return v.may_be_smallest; });
  std::optional<VariantPlan> best, smallest;
  double bound = std::numeric_limits<double>::infinity();
  // Whether `seconds` of a variant would make it the answer.
  const auto is_better = [&](double seconds, size_t variant) {
    if (!best) return true;
    const double least = seconds_of(best->plan);
    return seconds < least || (seconds == least && variant < best->variant);
  };
  for (size_t variant : by_bound_) {
    if (!is_better(keep_all(variant).update_seconds, variant)) continue;
    // Nothing of it can fit, and another one needs less.
    if (some_may_be_smallest && !variants_[variant].may_be_smallest &&
        state_of(keep_all(variant)) > arena_budget)
      continue;
    BudgetPlan plan = plan_of(variant, arena_budget, policy);
    std::optional<VariantPlan>& rival = plan.fits ? best : smallest;
    bool takes_over;
    if (plan.fits) {
      bound = std::min(bound, seconds_of(plan) * (1 - plan.gap.value_or(0)));
      takes_over = is_better(seconds_of(plan), variant);
    } else {
      takes_over = !rival || plan.compiled.report.arena < rival->plan.compiled.report.arena;
    }
    if (!takes_over) {
      forget(variant);
      continue;
    }
    if (rival) forget(rival->variant);
    rival = {variant, std::move(plan)};
  }
  VariantPlan found = std::move(best ? *best : smallest.value());
  const double seconds = seconds_of(found.plan);
  found.plan.slowdown = seconds / unlimited_seconds() - 1;
  if (found.plan.fits && found.plan.gap) found.plan.gap = std::max(0.0, 1 - bound / seconds);
  return found;
}

Bytes OuterSearch::smallest_arena() {
  std::optional<Bytes> smallest;
  for (size_t variant = 0; variant < variants_.size(); ++variant) {
    if (!variants_[variant].may_be_smallest) continue;
    const bool was_priced = search(variant).is_priced();
    const Bytes arena = search(variant).smallest_arena();
    if (!was_priced) forget(variant);
    if (!smallest || arena < *smallest) smallest = arena;
  }
  require(smallest.has_value(), "outer search: no variant may be the smallest");
  return *smallest;
}

}  // namespace snug
