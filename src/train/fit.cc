#include "train/fit.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "compile/micro_batch.h"
#include "compile/outer_search.h"
#include "train/batch.h"
#include "train/changes.h"
#include "train/variants.h"

namespace snug {
namespace {

// How often a plan is sought again because the process grew while it was sought.
constexpr int kMostRounds = 5;
// By which part of what lies outside the arena it may grow meanwhile.
constexpr int64_t kGrowthShare = 32;

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

// Why the first variant, the run without any of the choices, is not the one that was taken; `plan` is the one that was.
std::string reason(OuterSearch& search, const VariantPlan& found, Bytes arena_budget, const Prepared& run) {
  if (!found.plan.fits) return "nothing that is allowed fits and it is the smallest";
  if (found.variant == 0) return found.plan.slowdown <= 0 ? "everything fits" : "it is the fastest that fits";
  // What it needs at least tells more often than not, and takes no layout.
  BudgetSearch& first = search.search(0);
  if (!first.was_priced()) {
    first.price();
    first.forget_prices();
  }
  Bytes least = first.smallest_bound({.kind = RecomputePolicy::Kind::kOptimal});
  if (least <= arena_budget) least = first.smallest_arena();
  std::string without = "without that";
  if (run.asked.update_placement != run.options.update_placement &&
      run.options.update_placement == UpdatePlacement::kInBackward)
    without = "with the update after the backward";
  if (least > arena_budget)
    return fmt::format("{} the run needs at least {}", without,
                       format_bytes(peak_with_arena(least, run.reserve) + kReserveVariation));
  return fmt::format("it is the fastest that fits; {} the run is slower", without);
}

PlanSummary::Chosen chosen_of(const RunOptions& asked, const RunVariant& variant) {
  const RunOptions& now = variant.options;
  const bool inside = now.update_placement == UpdatePlacement::kInBackward;
  PlanSummary::Chosen chosen;
  chosen.update_placement = inside ? "in_backward" : "after";
  chosen.backward_passes = inside && now.max_grad_norm > 0 ? 2 : 1;
  chosen.micro_batch = now.per_device_train_batch_size;
  chosen.accumulation = now.gradient_accumulation_steps;
  chosen.head_chunk_rows = now.head_chunk_rows > 0 ? now.head_chunk_rows : kHeadChunkRows;
  chosen.mlp_chunk_rows = now.mlp_chunk_rows.value_or(0);
  for (const AllowanceInfo& info : allowances())
    if (variant.forms.contains(info.allowance)) chosen.forms.emplace_back(info.word);
  const auto planned = [&](bool was_planned, const char* option) {
    if (was_planned) chosen.planned.emplace_back(option);
  };
  planned(plans_micro_batch(asked), "per_device_train_batch_size");
  planned(asked.update_placement != now.update_placement, "update_placement");
  planned(asked.head_chunk_rows != now.head_chunk_rows, "head_chunk_rows");
  planned(asked.mlp_chunk_rows != now.mlp_chunk_rows, "mlp_chunk_rows");
  return chosen;
}

// Where the micro-batch is the planner's: of one window at a time and of the whole global batch, unless they are the one that was chosen.
Bytes smallest_of_other_micro_batches(const Prepared& run, const std::shared_ptr<SearchMemory>& memory) {
  Bytes smallest{INT64_MAX};
  if (!plans_micro_batch(run.asked)) return smallest;
  const std::vector<int64_t> sizes = open_micro_batches(run.asked);
  for (int64_t size : {sizes.front(), sizes.back()}) {
    if (size == run.options.per_device_train_batch_size) continue;
    std::vector<RunVariant> variants = variants_of(with_micro_batch(run.asked, size));
    std::erase_if(variants, [](const RunVariant& v) { return !v.may_be_smallest; });
    try {
      OuterSearch search(memory, compile_variants(variants, run.model, run.evaluates),
                         OuterSearch::Prices::kForgetOfLosers);
      smallest = std::min(smallest, search.smallest_arena());
    } catch (const UserError&) {  // beyond 64 bits
    }
  }
  return smallest;
}

}  // namespace

Bytes peak_with_arena(Bytes arena, Reserve reserve) {
  const Bytes tables = page_tables_for(arena);
  reserve.peak_so_far += tables - reserve.page_tables;
  reserve.page_tables = tables;
  return planned_process_peak(arena, reserve);
}

ChosenBatch with_chosen_micro_batch(const Prepared& run, const RunOptions& options, Bytes arena_budget,
                                    SearchMemory& memory) {
  if (!plans_micro_batch(options)) return {options};
  const std::vector<int64_t> sizes = open_micro_batches(options);
  const MicroBatch chosen = choose_micro_batch(
      memory, sizes,
      [&](int64_t size) {
        // What lies between none and all of what is allowed would rarely change the size, and takes long.
        std::vector<RunVariant> variants = variants_of(with_micro_batch(options, size));
        std::erase_if(variants, [](const RunVariant& v) { return !v.forms.empty() && !v.may_be_smallest; });
        return compile_variants(variants, run.model, run.evaluates);
      },
      arena_budget, options.recompute);
  return {with_micro_batch(options, chosen.size), chosen.fits};
}

void fit_to_budget(Prepared& run) {
  if (run.kind != RunKind::kTrain) return;
  const RecomputePolicy& policy = run.asked.recompute;
  const std::vector<RunVariant> variants = variants_of(run.options);
  const std::vector<Variant> all = compile_variants(variants, run.model, run.evaluates);
  run.compiled = {};  // never two plans at once

  std::vector<PlanSummary::Policy> policies;
  std::optional<double> gap;
  double unlimited_seconds = 0, bound_seconds = 0;
  std::string because;
  Bytes arena_budget = arena_within(run.budget, run.reserve), smallest_arena;
  size_t chosen = 0;
  bool nothing_fits = false;  // as far as could be told before the process had its final size
  bool whole = true;          // whether all variants are tried
  for (int round = 0; round < kMostRounds; ++round) {
    bool fits = false;
    {
      const auto memory = std::make_shared<SearchMemory>(run.model, run.backend->target());
      OuterSearch search(memory, whole ? std::span(all) : std::span(all).subspan(chosen, 1),
                         OuterSearch::Prices::kForgetOfLosers);
      VariantPlan found = search.within(arena_budget, policy);
      fits = found.plan.fits;
      if (whole) {
        nothing_fits = !fits;
        chosen = found.variant;
        run.options = variants[chosen].options;
        run.compile_options = all[chosen].options;
        because = reason(search, found, arena_budget, run);
      }
      if (round == 0) {
        unlimited_seconds = search.unlimited_seconds();
        policies = policies_of(search.search(chosen), run);
        smallest_arena = std::min(search.smallest_arena(), smallest_of_other_micro_batches(run, memory));
      }
      run.compiled = std::move(found.plan.compiled);
      const double seconds = run.compiled.report.update_seconds;
      gap = found.plan.gap;
      if (gap) {
        // What bounded all variants bounds them at a smaller budget as well.
        const double bound = seconds * (1 - *gap);
        bound_seconds = whole ? bound : std::min(bound_seconds, bound);
        gap = std::max(0.0, 1 - bound_seconds / seconds);
      }
    }
    malloc_trim(0);
    run.outside = process_memory();
    run.reserve = reserve_beside(run.compiled.plan, *run.backend, run.outside,
                                 host_batches(run.options, run.kind, run.evaluates));
    const Bytes peak = planned_process_peak(run.compiled.report.arena, run.reserve);
    if (fits && peak <= run.budget) break;
    if (!fits && whole) break;
    if (!fits) {  // the variant has no plan that is so much smaller, another one may
      whole = true;
      continue;
    }
    if (!needs_budget(policy) && all.size() == 1) break;
    whole = !needs_budget(policy);
    // Seeking grows the heap once more, so more than what is missing, where that leaves something to choose.
    const Bytes arena = run.compiled.report.arena;
    arena_budget = arena - std::min(arena, peak - run.budget + kReserveVariation);
    const Bytes growth{planned_process_peak(Bytes(0), run.reserve).value / kGrowthShare};
    if (arena_budget > smallest_arena + growth) arena_budget -= growth;
  }
  const int64_t tokens = run.schedule.windows_per_update() * run.options.max_length;
  run.summary = summarize(run.compiled.plan, run.reserve, run.budget, tokens, parameter_count(run.model));
  run.summary.recompute = to_string(policy);
  run.summary.slowdown = run.compiled.report.update_seconds / unlimited_seconds - 1;
  run.summary.gap = gap;
  run.summary.smallest_budget = peak_with_arena(smallest_arena, run.reserve) + kReserveVariation;
  run.summary.policies = std::move(policies);
  run.summary.chosen = chosen_of(run.asked, variants[chosen]);
  run.summary.chosen.because =
      run.summary.fits && nothing_fits ? "it is the smallest that is allowed" : because;
  if (needs_budget(policy) && std::any_of(run.summary.blocks.begin(), run.summary.blocks.end(),
                                          [](const auto& block) { return block.compressed > Bytes(); }))
    run.summary.chosen.forms.emplace_back("fp8_activations");
}

void require_budget_allowed(const Prepared& run) {
  if (run.options.memory && *run.options.memory > run.allowance.bytes)
    throw_user(ExitCode::kUsage, "memory is {} ({} bytes), but {} allows this process {} ({} bytes)",
               format_bytes(*run.options.memory), run.options.memory->value, run.allowance.source,
               format_bytes(run.allowance.bytes), run.allowance.bytes.value);
}

std::string budget_line(const Prepared& run) {
  if (run.asked.memory) return "";
  return fmt::format(
      "No --memory was given: the budget of {} is what is allowed ({}) less a margin of {}.\n"
      "  ({} allows it; --memory has no margin.)\n",
      format_bytes(run.budget), format_bytes(run.allowance.bytes), format_bytes(run.margin),
      run.allowance.source);
}

std::string refusal(const Prepared& run, bool lists_terms) {
  const Bytes missing = run.summary.peak - run.budget;
  std::string text = fmt::format("the run does not fit: it needs {} of {}, {} ({} bytes) too much.\n",
                                 format_bytes(run.summary.peak), format_bytes(run.budget),
                                 format_bytes(missing), missing.value);
  // What to do stands before what there is to know.
  const std::vector<Change> changes = changes_that_help(run);
  const bool any_fits = std::any_of(changes.begin(), changes.end(), [](const Change& c) { return c.fits; });
  size_t widest = 0;
  for (const Change& change : changes)
    if (change.fits == any_fits) widest = std::max(widest, change.description.size());
  // A longer description has a line of its own, so that no line is wider than a report.
  widest = std::min(widest, kReportColumns - std::string_view("   1023.9 MiB 1.23e+03 s/update").size());
  if (!changes.empty()) text += any_fits ? "These would make it fit:\n" : "No single one of these is enough:\n";
  for (const Change& change : changes) {
    if (change.fits != any_fits) continue;
    text += fmt::format("  {:<{}}", change.description, widest);
    if (change.description.size() > widest) text += fmt::format("\n  {:<{}}", "", widest);
    text += fmt::format(" {:>10} {:>8.3g} s/update\n", format_bytes(change.peak), change.step_seconds);
  }
  if (changes.empty() && run.kind == RunKind::kTrain) text += "Nothing in this version lowers the peak further;\n";
  // The smallest budget is policy optimal's; any other policy needs what its plan needs.
  const bool is_optimal =
      run.kind == RunKind::kTrain && run.options.recompute.kind == RecomputePolicy::Kind::kOptimal;
  const Bytes enough = is_optimal ? run.summary.smallest_budget.value() : run.summary.peak;
  text += fmt::format("or --memory {} and more.", enough.value);
  if (enough > run.allowance.bytes)
    text += fmt::format(" ({} allows this process {} now.)", run.allowance.source,
                        format_bytes(run.allowance.bytes));
  text += '\n' + budget_line(run);
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
  if (lists_terms) {
    text += fmt::format("Held at the peak ({}, {}):\n", run.summary.peak_phase, run.summary.peak_operation);
    for (const PlanSummary::Category& category : run.summary.categories)
      text += fmt::format("  {:<16} {:>10}\n", category.name, format_bytes(category.bytes));
  }
  text.pop_back();  // an error ends without a new line
  return text;
}

void require_plan_fits(const Prepared& run) {
  if (run.summary.peak > run.budget) throw UserError(ExitCode::kDoesNotFit, refusal(run, true));
}

Frontier frontier_of(const Prepared& run) {
  constexpr int kPoints = 12;
  const std::vector<RunVariant> variants =
      variants_of(with_micro_batch(run.asked, run.options.per_device_train_batch_size));
  OuterSearch search(run.model, compile_variants(variants, run.model, run.evaluates), run.backend->target(),
                     OuterSearch::Prices::kKeep);
  const RecomputePolicy optimal{.kind = RecomputePolicy::Kind::kOptimal};
  Frontier frontier;
  frontier.title = fmt::format("{}, {} parameters, batch {} × {}, {}", run.model.family,
                               parameter_count(run.model), run.options.per_device_train_batch_size,
                               run.options.max_length, precision_word(run.options.precision));
  frontier.keep_all_seconds = search.unlimited_seconds();
  const auto add = [&](Bytes arena_budget) {
    const VariantPlan found = search.within(arena_budget, optimal);
    const CompileReport& report = found.plan.compiled.report;
    if (!frontier.line.empty() && frontier.line.back().step_seconds <= report.update_seconds) return;
    const RunVariant& variant = variants[found.variant];
    frontier.line.push_back({.name = found.variant == 0 ? "" : describe(chosen_of(run.asked, variant)),
                             .peak = peak_with_arena(report.arena, run.reserve),
                             .step_seconds = report.update_seconds,
                             .gap = found.plan.gap.value_or(0)});
  };
  for (const PlanSummary::Policy& policy : policies_of(search.search(0), run))
    frontier.policies.push_back({policy.name, policy.peak, policy.step_seconds, 0});
  // Even steps, and what each policy needs: the line never lies below one of them.
  const Bytes low = search.smallest_arena(), high = search.search(search.fastest()).keep_all_arena();
  std::vector<Bytes> budgets{low, search.search(0).smallest_arena(), high};
  for (int point = 1; point < kPoints; ++point)
    budgets.push_back(low + Bytes((high - low).value / kPoints * point));
  for (const FrontierPoint& policy : frontier.policies)
    budgets.push_back(arena_within(policy.peak, run.reserve));
  std::sort(budgets.begin(), budgets.end());
  for (Bytes budget : budgets)
    if (budget >= low && budget <= high) add(budget);
  return frontier;
}

}  // namespace snug
