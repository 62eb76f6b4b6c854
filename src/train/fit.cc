#include "train/fit.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "compile/budget.h"

namespace snug {
namespace {

// How often a plan is sought again because the process grew while it was sought.
constexpr int kMostRounds = 4;

// What the reserves of two processes of the same run may differ by: a change that is offered must do in the next process.
constexpr Bytes kReserveVariation = kMiB;

Bytes peak_with_arena(Bytes arena, Reserve reserve) {
  reserve.page_tables = page_tables_for(arena);
  return planned_process_peak(arena, reserve);
}

std::vector<RecomputePolicy> named_policies(int64_t blocks) {
  using Kind = RecomputePolicy::Kind;
  std::vector<RecomputePolicy> policies = {{.kind = Kind::kNone},
                                           {.kind = Kind::kSelective, .groups = {"norm", "activation"}},
                                           {.kind = Kind::kSelective, .groups = {"attention"}}};
  for (int64_t every : {4, 2})
    if (blocks > every) policies.push_back({.kind = Kind::kUniform, .every = every});
  policies.push_back({.kind = Kind::kBlock});
  return policies;
}

std::vector<PlanSummary::Policy> policies_of(BudgetSearch& search, const Prepared& run) {
  std::vector<PlanSummary::Policy> rows;
  for (const RecomputePolicy& policy : named_policies(run.model.blocks)) {
    const BudgetSearch::Outcome outcome = search.outcome(policy);
    rows.push_back({to_string(policy), peak_with_arena(outcome.arena, run.reserve), outcome.update_seconds});
  }
  return rows;
}

// Peak and seconds of the same run with other options.
Change change_to(const Prepared& run, const std::string& description, const RunOptions& options) {
  const CompileOptions changed = compile_options(options, run.model, run.kind, run.compile_options.evaluate);
  const Target& target = run.backend->target();
  const Bytes budget = std::max(Bytes(0), run.budget - kReserveVariation);
  CompileReport report;
  if (needs_budget(options.recompute))
    report = BudgetSearch(run.model, changed, target)
                 .within(arena_within(budget, run.reserve), options.recompute)
                 .compiled.report;
  else
    report = compile(run.model, changed, target).report;
  const Bytes peak = peak_with_arena(report.arena, run.reserve);
  return {description, peak, report.update_seconds, peak <= budget};
}

}  // namespace

void fit_to_budget(Prepared& run) {
  if (run.kind != RunKind::kTrain) return;
  const RecomputePolicy& policy = run.options.recompute;
  PlanSummary choices;
  choices.recompute = to_string(policy);
  Bytes arena_budget = arena_within(run.budget, run.reserve), smallest_arena;
  for (int round = 0; round < kMostRounds; ++round) {
    bool fits = true;
    {
      BudgetSearch search(run.model, run.compile_options, run.backend->target());
      if (needs_budget(policy)) {
        if (search.keep_all().arena > arena_budget || round > 0) {
          BudgetPlan plan = search.within(arena_budget, policy);
          fits = plan.fits;
          choices.gap = plan.gap;
          run.compiled = std::move(plan.compiled);
        } else if (policy.kind == RecomputePolicy::Kind::kOptimal) {
          choices.gap = 0;
        }
      }
      choices.slowdown = run.compiled.report.update_seconds / search.keep_all().update_seconds - 1;
      if (round == 0) {
        smallest_arena = search.smallest().compiled.report.arena;
        choices.policies = policies_of(search, run);
      }
    }
    malloc_trim(0);
    run.outside = process_memory();
    run.reserve = reserve_beside(run.compiled.plan, *run.backend, run.outside);
    const Bytes peak = planned_process_peak(run.compiled.report.arena, run.reserve);
    if (!needs_budget(policy) || peak <= run.budget || !fits) break;
    // Seeking grows the heap a little once more, so a little more than what is missing.
    arena_budget -= std::min(arena_budget, peak - run.budget + kReserveVariation);
  }
  const int64_t tokens = run.schedule.windows_per_update() * run.options.max_length;
  run.summary = summarize(run.compiled.plan, run.reserve, run.budget, tokens, parameter_count(run.model));
  run.summary.recompute = choices.recompute;
  run.summary.slowdown = choices.slowdown;
  run.summary.gap = choices.gap;
  run.summary.smallest_budget = peak_with_arena(smallest_arena, run.reserve) + kReserveVariation;
  run.summary.policies = std::move(choices.policies);
}

Bytes fixed_bytes(const Prepared& run) {
  Bytes state;
  for (const PlanTensor& tensor : run.compiled.plan.tensors)
    if (tensor.storage == "state") state += tensor.shape.bytes(tensor.dtype);
  // The reserve beside an arena that holds the state alone.
  return peak_with_arena(state, run.reserve);
}

std::vector<Change> changes_that_help(const Prepared& run) {
  if (run.kind != RunKind::kTrain) return {};
  const bool state_alone_is_too_much = fixed_bytes(run) > run.budget;
  const RunOptions& now = run.options;
  std::vector<std::pair<std::string, RunOptions>> candidates;

  // Everything that saves memory without touching batch or data, alone and together.
  struct Saving {
    std::string option;
    void (*apply)(RunOptions&);
  };
  std::vector<Saving> savings;
  if (now.recompute.kind != RecomputePolicy::Kind::kOptimal)
    savings.push_back({"--recompute optimal",
                       [](RunOptions& o) { o.recompute = {.kind = RecomputePolicy::Kind::kOptimal}; }});
  if (now.precision == Precision::kF32)
    savings.push_back({"--precision bf16", [](RunOptions& o) { o.precision = Precision::kBF16; }});
  if (now.update_placement == UpdatePlacement::kAfter && now.gradient_accumulation_steps == 1)
    savings.push_back({"--update_placement in_backward",
                       [](RunOptions& o) { o.update_placement = UpdatePlacement::kInBackward; }});
  for (size_t set = 1; set < size_t{1} << savings.size(); ++set) {
    RunOptions options = now;
    std::string description;
    for (size_t i = 0; i < savings.size(); ++i)
      if ((set >> i) & 1) {
        savings[i].apply(options);
        description += (description.empty() ? "" : " ") + savings[i].option;
      }
    candidates.emplace_back(description, options);
  }
  if (!state_alone_is_too_much) {
    const int64_t global = now.per_device_train_batch_size * now.gradient_accumulation_steps;
    for (int64_t batch = now.per_device_train_batch_size / 2; batch >= 1; batch /= 2) {
      if (global % batch != 0) continue;
      RunOptions smaller = now;
      smaller.per_device_train_batch_size = batch;
      smaller.gradient_accumulation_steps = global / batch;
      smaller.update_placement = UpdatePlacement::kAfter;
      candidates.emplace_back(
          fmt::format("--per_device_train_batch_size {} --gradient_accumulation_steps {}{}", batch,
                      global / batch,
                      now.update_placement == UpdatePlacement::kAfter ? "" : " --update_placement after"),
          smaller);
    }
    for (int64_t length = now.max_length / 2; length >= 64; length /= 2) {
      RunOptions shorter = now;
      shorter.max_length = length;
      candidates.emplace_back(fmt::format("--max_length {}", length), shorter);
    }
  }
  std::vector<Change> changes;
  for (const auto& [description, options] : candidates) {
    Change change = change_to(run, description, options);
    if (change.fits || change.peak < run.summary.peak) changes.push_back(std::move(change));
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.fits != b.fits ? a.fits : a.fits ? a.step_seconds < b.step_seconds : a.peak < b.peak;
  });
  return changes;
}

void require_budget_allowed(const Prepared& run) {
  if (run.options.memory && *run.options.memory > run.allowance.bytes)
    throw_user(ExitCode::kUsage, "memory is {} ({} bytes), but {} allows this process {} ({} bytes)",
               format_bytes(*run.options.memory), run.options.memory->value, run.allowance.source,
               format_bytes(run.allowance.bytes), run.allowance.bytes.value);
}

void require_plan_fits(const Prepared& run, bool table_was_shown) {
  if (run.summary.peak <= run.budget) return;

  const Bytes missing = run.summary.peak - run.budget;
  std::string text = fmt::format("the run does not fit: it needs {} of {}, {} ({} bytes) too much.\n",
                                 format_bytes(run.summary.peak), format_bytes(run.budget),
                                 format_bytes(missing), missing.value);
  if (!table_was_shown) {
    text += fmt::format("Held at the peak ({}, {}):\n", run.summary.peak_phase, run.summary.peak_operation);
    for (const PlanSummary::Category& category : run.summary.categories)
      text += fmt::format("  {:<16} {:>10}\n", category.name, format_bytes(category.bytes));
  }
  const auto largest = std::max_element(run.summary.categories.begin(), run.summary.categories.end(),
                                        [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  if (largest != run.summary.categories.end())
    text += fmt::format(
        "The largest term is {}: {}, {:.0f} % of the peak.\n", largest->name, format_bytes(largest->bytes),
        100 * static_cast<double>(largest->bytes.value) / static_cast<double>(run.summary.peak.value));
  if (const Bytes fixed = fixed_bytes(run); fixed > run.budget)
    text += fmt::format(
        "Weights, optimizer state and reserve alone take {}: a smaller batch or length cannot help.\n",
        format_bytes(fixed));
  const std::vector<Change> changes = changes_that_help(run);
  const bool any_fits = std::any_of(changes.begin(), changes.end(), [](const Change& c) { return c.fits; });
  text += any_fits ? "These would make it fit:\n" : "No single one of these is enough:\n";
  for (const Change& change : changes)
    if (change.fits == any_fits)
      text += fmt::format("  {:<72} {:>10} {:>8.3g} s/update\n", change.description,
                          format_bytes(change.peak), change.step_seconds);
  if (changes.empty()) text += "  (nothing in this version lowers the peak further)\n";
  // The smallest budget is policy optimal's; any other policy needs what its plan needs.
  const bool is_optimal =
      run.kind == RunKind::kTrain && run.options.recompute.kind == RecomputePolicy::Kind::kOptimal;
  text += fmt::format("or --memory {} and more.",
                      (is_optimal ? run.summary.smallest_budget.value() : run.summary.peak).value);
  throw UserError(ExitCode::kDoesNotFit, text);
}

Frontier frontier_of(const Prepared& run) {
  constexpr int kPoints = 12;
  BudgetSearch search(run.model, run.compile_options, run.backend->target());
  const RecomputePolicy optimal{.kind = RecomputePolicy::Kind::kOptimal};
  Frontier frontier;
  frontier.title =
      fmt::format("{}, {} parameters, batch {} × {}, {}", run.model.family, parameter_count(run.model),
                  run.options.per_device_train_batch_size, run.options.max_length,
                  run.options.precision == Precision::kBF16 ? "bf16" : "fp32");
  frontier.keep_all_seconds = search.keep_all().update_seconds;
  const auto add = [&](const BudgetPlan& plan) {
    const CompileReport& report = plan.compiled.report;
    if (!frontier.line.empty() && frontier.line.back().step_seconds <= report.update_seconds) return;
    frontier.line.push_back(
        {"", peak_with_arena(report.arena, run.reserve), report.update_seconds, plan.gap.value_or(0)});
  };
  for (const PlanSummary::Policy& policy : policies_of(search, run))
    frontier.policies.push_back({policy.name, policy.peak, policy.step_seconds, 0});
  const BudgetPlan smallest = search.smallest();
  add(smallest);
  // Even steps, and what each policy needs: the line never lies below one of them.
  const Bytes low = smallest.compiled.report.arena, high = search.keep_all().arena;
  std::vector<Bytes> budgets{high};
  for (int point = 1; point < kPoints; ++point)
    budgets.push_back(low + Bytes((high - low).value / kPoints * point));
  for (const FrontierPoint& policy : frontier.policies)
    budgets.push_back(arena_within(policy.peak, run.reserve));
  std::sort(budgets.begin(), budgets.end());
  for (Bytes budget : budgets)
    if (budget > low && budget <= high) add(search.within(budget, optimal));
  return frontier;
}

}  // namespace snug
