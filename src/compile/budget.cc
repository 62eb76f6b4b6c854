#include "compile/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "ir/verify.h"

namespace snug {
namespace {

// How often the planner is asked because a layout needs more than what is live.
constexpr int kMostRounds = 6;
// Of these, how often its budget is lowered by no more than what was missing.
constexpr int kGentleRounds = 3;

const PhasePeak& micro_step_peak(const CompileReport& report) {
  const auto phase = std::find_if(report.phases.begin(), report.phases.end(),
                                  [](const PhasePeak& peak) { return peak.phase == "micro_step"; });
  require(phase != report.phases.end(), "budget search: the plan does not train");
  return *phase;
}

// Weights, masters and moments: held at every moment of every plan.
Bytes state_of(const CompileReport& report) {
  Bytes state;
  for (Category category : {Category::kWeights, Category::kMasterWeights, Category::kOptimizerState})
    state += report.peak.categories[static_cast<size_t>(category)];
  return state;
}

// All that finish_micro_step() looks at in the options of a slice.
std::string passes_over_slices(const CompileOptions& options) {
  return fmt::format("{} {} {} {}", options.plain, options.accumulation > 1, options.optimizer.bf16_gradients,
                     fmt::join(options.disabled_passes, ","));
}

}  // namespace

BudgetPlan finish(BudgetDraft draft, const Target& target) {
  for (const Phase& phase : draft.draft.program.phases) verify(phase.graph, "every pass");
  return {.compiled = finish(std::move(draft.draft), draft.layout, target),
          .retentions = std::move(draft.retentions),
          .fits = draft.fits,
          .slowdown = draft.slowdown,
          .gap = draft.gap};
}

BudgetSearch::BudgetSearch(std::shared_ptr<SearchMemory> memory, const CompileOptions& options)
    : memory_(std::move(memory)),
      model_(memory_->model()),
      target_(memory_->target()),
      options_(options),
      keep_all_(memory_->keep_all(options)) {
  options_.recompute = {};
  options_.choose_retentions = nullptr;
  for (const PhasePeak& peak : keep_all_.phases)
    if (peak.phase != "micro_step") other_phases_ = std::max(other_phases_, peak.bytes);
}

// What other phases hold while the micro-step runs: its peak in the plan less what its own graph holds then.
Bytes BudgetSearch::outside(Graph micro_step, const planner::Finish& finish) const {
  finish(micro_step);
  planner::OpPrices prices(target_);
  const planner::Sweep own = planner::sweep(micro_step, prices);
  return micro_step_peak(keep_all_).bytes - own.always - *std::max_element(own.held.begin(), own.held.end());
}

planner::Planner& BudgetSearch::planner() {
  if (planner_) return *planner_;
  planner_ = memory_->planner(options_, [this] {
    Graph graph = differentiated_micro_step(model_, options_);
    const planner::Finish finish = [options = options_](Graph& g) {
      // A slice has neither loss nor hyper-parameters; its gradients live to its end in either case.
      constexpr std::array<std::string_view, 1> kWholeGraphOnly = {"update_in_backward"};
      const bool is_slice =
          std::any_of(g.ops.begin(), g.ops.end(), [](const Op& op) { return op.name == planner::kTurn; });
      finish_micro_step(g, options, std::span(kWholeGraphOnly).first(is_slice ? 1 : 0));
    };
    const Bytes others = outside(graph, finish);
    return std::make_shared<planner::Planner>(std::move(graph), memory_->prices(),
                                              passes_over_slices(options_), finish, others,
                                              options_.compress_activations);
  });
  return *planner_;
}

void BudgetSearch::price() {
  if (smallest_) return;
  planner::Planner& planner = this->planner();
  smallest_ = {planner.smallest_retentions(), std::max(other_phases_, planner.smallest_budget())};
}

BudgetDraft BudgetSearch::laid_out(Draft draft, Bytes arena_budget) const {
  BudgetDraft made{.draft = std::move(draft), .layout = {}, .retentions = {}, .gap = {}};
  made.layout = lay_out(made.draft, arena_budget);
  made.fits = made.report().arena <= arena_budget;
  made.slowdown = made.report().update_seconds / keep_all_.update_seconds - 1;
  return made;
}

BudgetDraft BudgetSearch::drafted_with(const Retentions& retentions, Bytes arena_budget) const {
  CompileOptions chosen = options_;
  chosen.choose_retentions = [&](const Graph&) { return retentions; };
  BudgetDraft made = laid_out(draft(model_, chosen, target_, Checks::kNone), arena_budget);
  made.retentions = retentions;
  return made;
}

BudgetDraft BudgetSearch::drafted_by(const RecomputePolicy& policy, Bytes arena_budget) const {
  CompileOptions options = options_;
  options.recompute = policy;
  return laid_out(draft(model_, options, target_, Checks::kNone), arena_budget);
}

Bytes BudgetSearch::keep_all_arena() {
  if (!keep_all_arena_) keep_all_arena_ = drafted_by({}, Bytes(0)).report().arena;
  return *keep_all_arena_;
}

BudgetPlan BudgetSearch::within(Bytes arena_budget, const RecomputePolicy& policy) {
  std::optional<BudgetDraft> found = fitting(arena_budget, policy);
  return finish(found ? *std::move(found) : smallest_of(policy, arena_budget), target_);
}

std::optional<BudgetDraft> BudgetSearch::fitting(Bytes arena_budget, const RecomputePolicy& policy) {
  if (!needs_budget(policy)) {
    BudgetDraft only = drafted_by(policy, arena_budget);
    return only.fits ? std::optional(std::move(only)) : std::nullopt;
  }
  if (keep_all_arena_.value_or(keep_all_.lower_bound) <= arena_budget) {
    BudgetDraft all = drafted_by({}, arena_budget);
    if (policy.kind == RecomputePolicy::Kind::kOptimal) all.gap = 0;
    if (all.fits) return all;
    keep_all_arena_ = all.report().arena;
  }
  // What the micro-step does about its own bytes helps no other phase.
  if (other_phases_ > arena_budget) return std::nullopt;
  return policy.kind == RecomputePolicy::Kind::kOptimal ? optimal(arena_budget)
                                                        : greedy(arena_budget, policy);
}

BudgetSearch::Outcome BudgetSearch::estimate(Bytes arena_budget, const RecomputePolicy& policy) {
  if (policy.kind != RecomputePolicy::Kind::kOptimal && needs_budget(policy)) {
    const CompileReport report = within(arena_budget, policy).compiled.report;
    return {report.arena, report.update_seconds, report.arena <= arena_budget};
  }
  if (!needs_budget(policy)) {
    Outcome only = outcome(policy);
    only.fits = only.arena <= arena_budget;
    return only;
  }
  if (keep_all_.lower_bound <= arena_budget) return {keep_all_.lower_bound, keep_all_.update_seconds, true};
  const planner::ChainPlan plan = planner().estimate(arena_budget);
  const Bytes arena = std::max(other_phases_, plan.needed);
  return {arena, keep_all_.update_seconds + static_cast<double>(options_.accumulation) * plan.seconds,
          arena <= arena_budget};
}

std::optional<BudgetDraft> BudgetSearch::optimal(Bytes arena_budget) {
  price();
  Bytes aim = arena_budget;
  double bound_seconds = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::optional<planner::Choice> choice = planner().choose(aim);
    if (!choice) break;
    // Of every plan within the budget; a smaller aim has a higher bound.
    if (round == 0) bound_seconds = planner().bound_seconds(arena_budget);
    BudgetDraft made = drafted_with(choice->retentions, arena_budget);
    made.gap = (choice->seconds - bound_seconds) / (choice->step_seconds + choice->seconds);
    if (made.fits) return made;
    const Bytes missing = made.report().arena - arena_budget;
    aim = round < kGentleRounds ? aim - missing : std::min(aim, choice->peak) - 2 * missing;
  }
  if (smallest_bound({.kind = RecomputePolicy::Kind::kOptimal}) > arena_budget) return std::nullopt;
  BudgetDraft made = drafted_smallest(arena_budget);
  if (!made.fits) return std::nullopt;
  const double seconds = planner().outcome(made.retentions).seconds;
  made.gap = std::max(0.0, seconds - bound_seconds) / (planner().keep_all_seconds() + seconds);
  return made;
}

BudgetDraft BudgetSearch::drafted_smallest(Bytes arena_budget) const {
  std::optional<BudgetDraft> smallest;
  for (const Retentions& retentions : smallest_->retentions) {
    BudgetDraft made = drafted_with(retentions, arena_budget);
    if (!smallest || made.report().arena < smallest->report().arena) smallest = std::move(made);
    if (smallest->fits) break;
  }
  return *std::move(smallest);
}

BudgetPlan BudgetSearch::smallest() {
  return finish(smallest_of({.kind = RecomputePolicy::Kind::kOptimal}, Bytes(0)), target_);
}

Bytes BudgetSearch::smallest_arena() {
  if (!smallest_arena_) smallest_of({.kind = RecomputePolicy::Kind::kOptimal}, Bytes(0));
  return *smallest_arena_;
}

double BudgetSearch::bound_seconds(Bytes arena_budget) {
  double extra = 0;
  if (keep_all_.lower_bound > arena_budget && planner().smallest_budget() <= arena_budget)
    extra = planner().bound_seconds(arena_budget);
  return keep_all_.update_seconds + static_cast<double>(options_.accumulation) * extra;
}

Bytes BudgetSearch::smallest_bound(const RecomputePolicy& policy) const {
  if (policy.kind != RecomputePolicy::Kind::kOptimal) return other_phases_;
  if (smallest_arena_) return *smallest_arena_;
  return smallest_ ? smallest_->live : std::max(other_phases_, state_of(keep_all_));
}

BudgetDraft BudgetSearch::smallest_of(const RecomputePolicy& policy, Bytes arena_budget) {
  if (!needs_budget(policy)) return drafted_by(policy, arena_budget);
  if (policy.kind != RecomputePolicy::Kind::kOptimal) {
    const std::vector<planner::Droppable> order = order_of(policy);
    return drafted_with(planner().retentions_of_prefix(order, order.size()), arena_budget);
  }
  price();
  BudgetDraft made = drafted_smallest(arena_budget);
  // A layout that fits might be improved further.
  if (!made.fits) smallest_arena_ = made.report().arena;
  return made;
}

std::vector<planner::Droppable> BudgetSearch::order_of(const RecomputePolicy& policy) {
  return policy.kind == RecomputePolicy::Kind::kMemory ? planner().order_by_size()
                                                       : planner().order_by_cost();
}

std::optional<BudgetDraft> BudgetSearch::greedy(Bytes arena_budget, const RecomputePolicy& policy) {
  // Dropping more does not always need less (chains get longer), so the answer is judged by its own arena.
  const std::vector<planner::Droppable> order = order_of(policy);
  size_t too_few = 0, enough = order.size();
  const auto plan_with = [&](size_t count) {
    return drafted_with(planner().retentions_of_prefix(order, count), arena_budget);
  };
  BudgetDraft plan = plan_with(enough);
  if (!plan.fits) return std::nullopt;
  while (too_few + 1 < enough) {
    const size_t middle = (too_few + enough) / 2;
    const Bytes live =
        std::max(other_phases_, planner().outcome(planner().retentions_of_prefix(order, middle)).peak);
    (live <= arena_budget ? enough : too_few) = middle;
  }
  for (; enough < order.size(); ++enough) {
    BudgetDraft nearer = plan_with(enough);
    if (nearer.fits) return nearer;
  }
  return plan;
}

BudgetSearch::Outcome BudgetSearch::outcome(const RecomputePolicy& policy) {
  const planner::Planner::Outcome found = planner().outcome(retentions(planner().graph(), policy));
  return {.arena = std::max(other_phases_, found.peak),
          .update_seconds =
              keep_all_.update_seconds + static_cast<double>(options_.accumulation) * found.seconds};
}

}  // namespace snug
