#include "train/fit.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "base/child.h"
#include "base/errors.h"
#include "base/json_type.h"
#include "compile/micro_batch.h"
#include "compile/outer_search.h"
#include "train/batch.h"
#include "train/changes.h"
#include "train/variants.h"

namespace snug {
namespace {

// How often a plan is sought again because the process grew by it.
constexpr int kMostRounds = 4;
// The longest that a plan is sought.
constexpr double kSeekingSeconds = 1200;

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

std::vector<PlanSummary::Policy> policies_of(BudgetSearch& search, const Prepared& run,
                                             const Reserve& reserve) {
  std::vector<PlanSummary::Policy> rows;
  for (const RecomputePolicy& policy : named_policies(run.model.blocks)) {
    const BudgetSearch::Outcome outcome = search.outcome(policy);
    rows.push_back({to_string(policy), peak_with_arena(outcome.arena, reserve), outcome.update_seconds});
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
                       format_bytes(peak_with_arena(least, stated(run.reserve))));
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

// What is found of a run within an arena: plain data, with a text form for the way between two processes.
struct Sought {
  size_t variant = 0;
  bool fits = false;
  Retentions retentions;  // empty: everything is kept, or a named policy says
  std::optional<double> gap;
  double unlimited_seconds = 0;
  Bytes smallest_arena;   // of everything that is allowed
  Bytes smallest_growth;  // what its plan takes of the heap beyond this one's; where the plan is stated
  std::string because;
  std::vector<PlanSummary::Policy> policies;
  std::optional<std::vector<PlanSummary::Alternative>> alternatives;
};

std::string to_text(const Sought& sought) {
  std::string retentions;
  for (Retention retention : sought.retentions)
    retentions += static_cast<char>('0' + static_cast<int>(retention));
  Json json{{"variant", sought.variant},
            {"fits", sought.fits},
            {"retentions", retentions},
            {"unlimited_seconds", sought.unlimited_seconds},
            {"smallest_arena", sought.smallest_arena.value},
            {"smallest_growth", sought.smallest_growth.value},
            {"because", sought.because},
            {"policies", Json::array()}};
  if (sought.gap) json["gap"] = *sought.gap;
  for (const PlanSummary::Policy& policy : sought.policies)
    json["policies"].push_back({policy.name, policy.peak.value, policy.step_seconds});
  if (!sought.alternatives) return json.dump();
  json["alternatives"] = Json::array();
  for (const PlanSummary::Alternative& row : *sought.alternatives) {
    Json terms = Json::array();
    for (const PlanSummary::Category& term : row.terms) terms.push_back({term.name, term.bytes.value});
    json["alternatives"].push_back({row.option, terms, row.peak.value, row.step_seconds, row.fits});
  }
  return json.dump();
}

Sought sought_of(const std::string& text) {
  const Json json = Json::parse(text);
  Sought sought{.variant = json["variant"].get<size_t>(),
                .fits = json["fits"].get<bool>(),
                .retentions = {},
                .gap = {},
                .unlimited_seconds = json["unlimited_seconds"].get<double>(),
                .smallest_arena = Bytes(json["smallest_arena"].get<int64_t>()),
                .smallest_growth = Bytes(json["smallest_growth"].get<int64_t>()),
                .because = json["because"].get<std::string>(),
                .policies = {},
                .alternatives = {}};
  for (char retention : json["retentions"].get<std::string>())
    sought.retentions.push_back(static_cast<Retention>(retention - '0'));
  if (json.contains("gap")) sought.gap = json["gap"].get<double>();
  for (const Json& row : json["policies"])
    sought.policies.push_back(
        {row[0].get<std::string>(), Bytes(row[1].get<int64_t>()), row[2].get<double>()});
  if (!json.contains("alternatives")) return sought;
  sought.alternatives.emplace();
  for (const Json& row : json["alternatives"]) {
    PlanSummary::Alternative alternative{.option = row[0].get<std::string>(),
                                         .terms = {},
                                         .peak = Bytes(row[2].get<int64_t>()),
                                         .step_seconds = row[3].get<double>(),
                                         .fits = row[4].get<bool>()};
    for (const Json& term : row[1])
      alternative.terms.push_back({term[0].get<std::string>(), Bytes(term[1].get<int64_t>())});
    sought.alternatives->push_back(std::move(alternative));
  }
  return sought;
}

// What `compiled` holds of the heap, which is given back.
Bytes heap_of(Compiled& compiled) {
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  const int64_t before = in_use();
  compiled = {};
  return Bytes(before - in_use());
}

// The best plan of all variants for an arena of that size. Sets the options of `run` to those of the plan.
Sought seek(Prepared& run, const std::vector<RunVariant>& variants, const std::vector<Variant>& all,
            Bytes arena_budget, const PlanQuestion& question) {
  const auto memory = std::make_shared<SearchMemory>(run.model, run.backend->target());
  OuterSearch search(memory, all, OuterSearch::Prices::kForgetOfLosers);
  VariantPlan found = search.within(arena_budget, run.asked.recompute);
  run.options = variants[found.variant].options;
  Sought sought{
      .variant = found.variant,
      .fits = found.plan.fits,
      .retentions = found.plan.retentions,
      .gap = found.plan.gap,
      .unlimited_seconds = search.unlimited_seconds(),
      .smallest_arena = std::min(search.smallest_arena(), smallest_of_other_micro_batches(run, memory)),
      .smallest_growth = {},
      .because = reason(search, found, arena_budget, run),
      .policies = policies_of(search.search(found.variant), run,
                              question.is_stated ? stated(run.reserve) : run.reserve),
      .alternatives = {}};
  if (question.is_stated && sought.smallest_arena < found.plan.compiled.report.arena) {
    VariantPlan smallest = search.smallest();
    sought.smallest_growth =
        std::max(Bytes(), heap_of(smallest.plan.compiled) - heap_of(found.plan.compiled));
  }
  if (question.with_alternatives && found.plan.fits) sought.alternatives = alternatives_of(run, memory);
  return sought;
}

// What was sought, made here: its plan, and what the process holds beside it.
void take(Prepared& run, const Variant& variant, const Sought& sought, Bytes arena_budget) {
  run.compile_options = variant.options;
  CompileOptions options = variant.options;
  if (!sought.retentions.empty())
    options.choose_retentions = [&](const Graph&) { return sought.retentions; };
  else if (!needs_budget(run.asked.recompute))
    options.recompute = run.asked.recompute;
  run.compiled = {};  // never two plans at once
  run.compiled = compile_within(run.model, options, arena_budget, run.backend->target());
  malloc_trim(0);
  run.outside = process_memory();
  run.reserve = reserve_beside(run.compiled.plan, *run.backend, run.outside,
                               host_batches(run.options, run.kind, run.evaluates));
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

ChosenBatch with_sought_micro_batch(const Prepared& run, const RunOptions& options, Bytes arena_budget,
                                    const PlanQuestion& question) {
  if (!plans_micro_batch(options)) return {options};
  const std::string answer = in_child(
      [&] {
        SearchMemory memory(run.model, run.backend->target());
        const ChosenBatch chosen = with_chosen_micro_batch(run, options, arena_budget, memory);
        return fmt::format("{} {}", chosen.options.per_device_train_batch_size, chosen.fits ? "fits" : "");
      },
      kSeekingSeconds, question.waiting);
  return {with_micro_batch(options, std::stoll(answer)), answer.ends_with("fits")};
}

void fit_to_budget(Prepared& run, const PlanQuestion& question) {
  if (run.kind != RunKind::kTrain) return;
  const RecomputePolicy& policy = run.asked.recompute;
  const std::vector<RunVariant> variants = variants_of(run.options);
  const std::vector<Variant> all = compile_variants(variants, run.model, run.evaluates);
  // A plan that is only stated shall hold in the process that trains by it. Half a step of what is stated besides: so the budget that one
  // plan states as its peak has room for the same plan where another one asks.
  const auto reserve = [&] {
    return question.is_stated ? larger_by(run.reserve, Bytes(kReserveStep.value / 2)) : run.reserve;
  };

  Sought sought;
  double bound_seconds = 0;
  bool nothing_fits = false;
  Bytes arena_budget = arena_within(run.budget, reserve());
  for (int round = 0; round < kMostRounds; ++round) {
    sought = sought_of(in_child([&] { return to_text(seek(run, variants, all, arena_budget, question)); },
                                kSeekingSeconds, question.waiting));
    run.options = variants[sought.variant].options;
    take(run, all[sought.variant], sought, arena_budget);
    if (sought.gap) {
      // What bounded all plans bounds them at a smaller budget as well.
      const double bound = run.compiled.report.update_seconds * (1 - *sought.gap);
      bound_seconds = round == 0 ? bound : std::min(bound, bound_seconds);
    }
    nothing_fits = nothing_fits || !sought.fits;
    const Bytes arena = run.compiled.report.arena;
    if (planned_process_peak(arena, reserve()) <= run.budget) break;
    // Nothing smaller is to be had. What this process leaves may do for what would be stated as too much.
    if (!sought.fits || arena <= sought.smallest_arena) break;
    const Bytes missing = planned_process_peak(arena, reserve()) - run.budget;
    arena_budget = std::max(sought.smallest_arena, arena - std::min(arena, missing));
  }

  Reserve shown = question.is_stated ? stated(run.reserve) : run.reserve;
  const Bytes arena = run.compiled.report.arena;
  if (const Bytes peak = planned_process_peak(arena, run.reserve);
      peak <= run.budget && planned_process_peak(arena, shown) > run.budget) {
    // What is stated beyond this process is what the budget leaves.
    shown = larger_by(run.reserve, run.budget - peak);
  }
  const double seconds = run.compiled.report.update_seconds;
  const int64_t tokens = run.schedule.windows_per_update() * run.options.max_length;
  run.summary = summarize(run.compiled.plan, shown, run.budget, tokens, parameter_count(run.model));
  run.summary.recompute = to_string(policy);
  run.summary.slowdown = seconds / sought.unlimited_seconds - 1;
  if (sought.gap) run.summary.gap = std::max(0.0, 1 - bound_seconds / seconds);
  // A heap that holds more is a little less dense, too.
  const Bytes growth = sought.smallest_growth + Bytes(sought.smallest_growth.value / 4);
  run.summary.smallest_budget =
      peak_with_arena(sought.smallest_arena, stated(larger_by(run.reserve, growth)));
  run.summary.policies = std::move(sought.policies);
  run.summary.alternatives = std::move(sought.alternatives);
  run.summary.chosen = chosen_of(run.asked, variants[sought.variant]);
  run.summary.chosen.because =
      run.summary.fits && nothing_fits ? "it is the smallest that is allowed" : sought.because;
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
  if (!changes.empty())
    text += any_fits ? "These would make it fit:\n" : "No single one of these is enough:\n";
  for (const Change& change : changes) {
    if (change.fits != any_fits) continue;
    text += fmt::format("  {:<{}}", change.description, widest);
    if (change.description.size() > widest) text += fmt::format("\n  {:<{}}", "", widest);
    text += fmt::format(" {:>10} {:>8.3g} s/update\n", format_bytes(change.peak), change.step_seconds);
  }
  if (changes.empty() && run.kind == RunKind::kTrain)
    text += "Nothing in this version lowers the peak further;\n";
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
  for (const PlanSummary::Policy& policy : policies_of(search.search(0), run, run.reserve))
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
