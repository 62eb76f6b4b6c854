#include "compile/outer_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/errors.h"

namespace snug {
namespace {

double seconds_of(const BudgetDraft& plan) { return plan.report().update_seconds; }

}  // namespace

OuterSearch::OuterSearch(const std::shared_ptr<SearchMemory>& memory, std::span<const Variant> variants,
                         Prices prices)
    : memory_(memory), variants_(variants.begin(), variants.end()), prices_(prices) {
  require(!variants_.empty(), "outer search: no variant");
  for (const Variant& variant : variants_)
    searches_.push_back(std::make_unique<BudgetSearch>(memory_, variant.options));
  by_bound_.resize(variants_.size());
  std::iota(by_bound_.begin(), by_bound_.end(), size_t{0});
  std::stable_sort(by_bound_.begin(), by_bound_.end(), [&](size_t a, size_t b) {
    return keep_all(a).update_seconds < keep_all(b).update_seconds;
  });
}

bool OuterSearch::is_never_smallest(size_t variant) const {
  return !variants_[variant].may_be_smallest &&
         std::any_of(variants_.begin(), variants_.end(), [](const Variant& v) { return v.may_be_smallest; });
}

void OuterSearch::forget(size_t variant) {
  if (prices_ == Prices::kForgetOfLosers) search(variant).forget_prices();
}

VariantPlan OuterSearch::within(Bytes arena_budget, const RecomputePolicy& policy) {
  Found found = find(arena_budget, policy);
  return {found.variant, finish(std::move(found.draft), memory_->target())};
}

VariantOutcome OuterSearch::outcome(Bytes arena_budget, const RecomputePolicy& policy) {
  Found found = find(arena_budget, policy);
  return {found.variant, std::move(found.draft.draft.report), found.draft.fits};
}

BudgetSearch::Outcome OuterSearch::estimate(Bytes arena_budget, const RecomputePolicy& policy) {
  std::optional<BudgetSearch::Outcome> best;
  for (size_t variant : by_bound_) {
    if (best && best->fits && keep_all(variant).update_seconds >= best->update_seconds) break;
    if (best && search(variant).smallest_bound(policy) > arena_budget && is_never_smallest(variant)) continue;
    const BudgetSearch::Outcome found = search(variant).estimate(arena_budget, policy);
    forget(variant);
    const bool is_better = !best || (found.fits != best->fits ? found.fits
                                     : found.fits             ? found.update_seconds < best->update_seconds
                                                              : found.arena < best->arena);
    if (is_better) best = found;
  }
  return *best;
}

OuterSearch::Found OuterSearch::find(Bytes arena_budget, const RecomputePolicy& policy) {
  std::optional<Found> fitting = find_fitting(arena_budget, policy);
  Found found = fitting ? *std::move(fitting) : find_smallest(arena_budget, policy);
  found.draft.slowdown = seconds_of(found.draft) / unlimited_seconds() - 1;
  return found;
}

std::optional<OuterSearch::Found> OuterSearch::find_fitting(Bytes arena_budget,
                                                            const RecomputePolicy& policy) {
  std::optional<Found> best;
  double bound = std::numeric_limits<double>::infinity();
  // Whether `seconds` of a variant would make it the answer.
  const auto is_better = [&](double seconds, size_t variant) {
    if (!best) return true;
    const double least = seconds_of(best->draft);
    return seconds < least || (seconds == least && variant < best->variant);
  };
  for (size_t variant : by_bound_) {
    if (!is_better(keep_all(variant).update_seconds, variant) ||
        search(variant).smallest_bound(policy) > arena_budget)
      continue;
    // Known before a plan is compiled and laid out. Sums in another order are not told apart.
    if (best && policy.kind == RecomputePolicy::Kind::kOptimal &&
        !is_better(search(variant).bound_seconds(arena_budget) * (1 - 1e-9), variant)) {
      forget(variant);
      continue;
    }
    std::optional<BudgetDraft> plan = search(variant).fitting(arena_budget, policy);
    if (plan) bound = std::min(bound, seconds_of(*plan) * (1 - plan->gap.value_or(0)));
    if (!plan || !is_better(seconds_of(*plan), variant)) {
      forget(variant);
      continue;
    }
    if (best) forget(best->variant);
    best = {variant, *std::move(plan)};
  }
  if (best && best->draft.gap) best->draft.gap = std::max(0.0, 1 - bound / seconds_of(best->draft));
  return best;
}

void OuterSearch::for_each_smallest(const RecomputePolicy& policy, const std::function<Bytes()>& limit,
                                    const std::function<void(size_t)>& try_smallest) {
  std::vector<size_t> order;
  for (size_t variant = 0; variant < variants_.size(); ++variant)
    if (!is_never_smallest(variant)) order.push_back(variant);
  const auto least = [&](size_t variant) { return search(variant).smallest_bound(policy); };
  while (!order.empty()) {
    const auto next =
        std::min_element(order.begin(), order.end(), [&](size_t a, size_t b) { return least(a) < least(b); });
    const size_t variant = *next;
    if (least(variant) >= limit()) return;
    // What a variant needs at least is known much better once it was priced, so that another one may be the next.
    if (policy.kind == RecomputePolicy::Kind::kOptimal && !search(variant).was_priced()) {
      search(variant).price();
      forget(variant);
      continue;
    }
    order.erase(next);
    try_smallest(variant);
  }
}

OuterSearch::Found OuterSearch::find_smallest(Bytes arena_budget, const RecomputePolicy& policy) {
  std::optional<Found> smallest;
  for_each_smallest(
      policy, [&] { return smallest ? smallest->draft.report().arena : Bytes(INT64_MAX); },
      [&](size_t variant) {
        BudgetDraft plan = search(variant).smallest_of(policy, arena_budget);
        forget(variant);
        if (!smallest || plan.report().arena < smallest->draft.report().arena)
          smallest = {variant, std::move(plan)};
      });
  return *std::move(smallest);
}

VariantPlan OuterSearch::smallest() {
  Found found = find_smallest(Bytes(0), {.kind = RecomputePolicy::Kind::kOptimal});
  return {found.variant, finish(std::move(found.draft), memory_->target())};
}

Bytes OuterSearch::smallest_arena() {
  Bytes smallest{INT64_MAX};
  for_each_smallest(
      {.kind = RecomputePolicy::Kind::kOptimal}, [&] { return smallest; },
      [&](size_t variant) { smallest = std::min(smallest, search(variant).smallest_arena()); });
  return smallest;
}

}  // namespace snug
