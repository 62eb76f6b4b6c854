#include "compile/budget.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/errors.h"

namespace snug {
namespace {

// How often the planner is asked again because a layout needs more than what is live.
constexpr int kMostRounds = 4;

const PhasePeak& micro_step_peak(const CompileReport& report) {
  const auto phase = std::find_if(report.phases.begin(), report.phases.end(),
                                  [](const PhasePeak& peak) { return peak.phase == "micro_step"; });
  require(phase != report.phases.end(), "budget search: the plan does not train");
  return *phase;
}

}  // namespace

BudgetSearch::BudgetSearch(const Model& model, const CompileOptions& options, const Target& target)
    : model_(model), options_(options), target_(target) {
  options_.recompute = {};
  options_.choose_retentions = nullptr;
  keep_all_ = compile(model_, options_, target_).report;
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
  Graph graph = differentiated_micro_step(model_, options_);
  const planner::Finish finish = [this](Graph& g) {
    // A slice has neither loss nor hyper-parameters; its gradients live to its end in either case.
    constexpr std::array<std::string_view, 1> kWholeGraphOnly = {"update_in_backward"};
    const bool is_slice =
        std::any_of(g.ops.begin(), g.ops.end(), [](const Op& op) { return op.name == planner::kTurn; });
    finish_micro_step(g, options_, std::span(kWholeGraphOnly).first(is_slice ? 1 : 0));
  };
  const Bytes others = outside(graph, finish);
  return planner_.emplace(std::move(graph), target_, finish, others, options_.compress_activations);
}

BudgetPlan BudgetSearch::compiled_with(const Retentions& retentions, Bytes arena_budget) const {
  CompileOptions chosen = options_;
  chosen.choose_retentions = [&](const Graph&) { return retentions; };
  chosen.arena_budget = arena_budget;
  BudgetPlan plan;
  plan.compiled = compile(model_, chosen, target_);
  plan.retentions = retentions;
  plan.fits = plan.compiled.report.arena <= arena_budget;
  plan.slowdown = plan.compiled.report.update_seconds / keep_all_.update_seconds - 1;
  return plan;
}

BudgetPlan BudgetSearch::within(Bytes arena_budget, const RecomputePolicy& policy) {
  require(needs_budget(policy), "budget search: policy {} needs none", to_string(policy));
  const bool is_optimal = policy.kind == RecomputePolicy::Kind::kOptimal;
  if (keep_all_.arena <= arena_budget) {
    BudgetPlan plan;
    plan.compiled = compile(model_, options_, target_);
    plan.fits = true;
    if (is_optimal) plan.gap = 0;
    return plan;
  }
  if (is_optimal) return optimal(arena_budget);
  return greedy(arena_budget, policy.kind == RecomputePolicy::Kind::kMemory ? planner().order_by_size()
                                                                            : planner().order_by_cost());
}

BudgetPlan BudgetSearch::optimal(Bytes arena_budget) {
  Bytes aim = arena_budget;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::optional<planner::Choice> choice = planner().choose(aim);
    if (!choice) break;
    BudgetPlan plan = compiled_with(choice->retentions, arena_budget);
    plan.gap = choice->gap();
    if (plan.fits) return plan;
    aim -= plan.compiled.report.arena - arena_budget;
  }
  return smallest_for(arena_budget);
}

BudgetPlan BudgetSearch::smallest() {
  BudgetPlan plan = smallest_for(Bytes(0));
  smallest_arena_ = plan.compiled.report.arena;
  return plan;
}

Bytes BudgetSearch::smallest_arena() { return smallest_arena_ ? *smallest_arena_ : smallest().compiled.report.arena; }

BudgetPlan BudgetSearch::smallest_for(Bytes arena_budget) {
  const planner::Choice choice = planner().choose(planner().smallest_budget()).value();
  BudgetPlan plan = compiled_with(choice.retentions, arena_budget);
  if (plan.fits) plan.gap = choice.gap();
  return plan;
}

BudgetPlan BudgetSearch::greedy(Bytes arena_budget, const std::vector<planner::Droppable>& order) {
  // Dropping more does not always need less (chains get longer), so the answer is judged by its own arena.
  size_t too_few = 0, enough = order.size();
  const auto plan_with = [&](size_t count) {
    return compiled_with(planner().retentions_of_prefix(order, count), arena_budget);
  };
  BudgetPlan plan = plan_with(enough);
  if (!plan.fits) return plan;
  while (too_few + 1 < enough) {
    const size_t middle = (too_few + enough) / 2;
    const Bytes live =
        std::max(other_phases_, planner().outcome(planner().retentions_of_prefix(order, middle)).peak);
    (live <= arena_budget ? enough : too_few) = middle;
  }
  for (; enough < order.size(); ++enough) {
    BudgetPlan nearer = plan_with(enough);
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
