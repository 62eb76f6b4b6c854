#include "train/changes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "compile/outer_search.h"
#include "train/batch.h"
#include "train/fit.h"
#include "train/variants.h"

namespace snug {
namespace {

// Gradients in bf16 go with no accumulation: what a run with several micro-steps is told instead.
std::string sums_in_fp32(RunOptions& options) {
  if (options.gradients != DType::kBF16 || options.gradient_accumulation_steps == 1) return "";
  options.gradients = DType::kF32;
  return " --gradients fp32";
}

// One option that lowers some term: a word of --allow, or an option of its own.
struct Saving {
  std::string option;  // "--precision bf16"; of a word: empty
  std::optional<Allowance> allowance;
  std::function<void(RunOptions&)> apply;
};

// Those that `asked` has not, the exact ones first.
std::vector<Saving> savings_of(const RunOptions& asked) {
  std::vector<Saving> savings;
  if (asked.recompute.kind != RecomputePolicy::Kind::kOptimal)
    savings.push_back({"--recompute optimal", {}, [](RunOptions& o) {
                         o.recompute = {.kind = RecomputePolicy::Kind::kOptimal};
                       }});
  if (asked.update_placement == UpdatePlacement::kAfter && asked.gradient_accumulation_steps == 1 &&
      asked.precision != Precision::kF16)
    savings.push_back({"--update_placement auto", {}, [](RunOptions& o) { o.update_placement.reset(); }});
  if (asked.precision != Precision::kBF16)
    savings.push_back({"--precision bf16", {}, [](RunOptions& o) { o.precision = Precision::kBF16; }});
  // Other orders of sums last: they open many plans.
  std::vector<Allowance> words;
  for (const AllowanceInfo& info : allowances())
    if (info.allowance != Allowance::kReassociation) words.push_back(info.allowance);
  words.push_back(Allowance::kReassociation);
  for (const Allowance allowance : words) {
    if (asked.allow.contains(allowance)) continue;
    RunOptions changed = asked;
    changed.allow = {allowance};
    changed = with_micro_batch(changed, open_micro_batches(changed).back());
    RunOptions without = changed;
    without.allow = {};
    // A word that neither a variant nor the planner makes use of in this run changes nothing.
    const bool is_planners =
        allowance == Allowance::kFp8Activations && asked.recompute.kind == RecomputePolicy::Kind::kOptimal;
    if (!is_planners && variants_of(changed).size() == variants_of(without).size()) continue;
    savings.push_back({"", allowance, [allowance](RunOptions& o) { o.allow.insert(allowance); }});
  }
  return savings;
}

// The options that `savings` add to those of `asked`, as they are written.
std::string description_of(const RunOptions& asked, std::span<const Saving> savings) {
  std::string text;
  Allowed allowed = asked.allow;
  bool allows_more = false;
  for (const Saving& saving : savings) {
    if (saving.allowance) {
      allowed.insert(*saving.allowance);
      allows_more = true;
    } else {
      text += (text.empty() ? "" : " ") + saving.option;
    }
  }
  if (allows_more) text += fmt::format("{}--allow {}", text.empty() ? "" : " ", to_string(allowed));
  return text;
}

RunOptions with_savings(RunOptions options, std::span<const Saving> savings) {
  for (const Saving& saving : savings) saving.apply(options);
  return options;
}

// The same run planned with other options: laid out, or by the planner's own numbers.
enum class Numbers : uint8_t { kOfLayouts, kEstimated };
Change change_to(const Prepared& run, const std::string& description, const RunOptions& asked,
                 const std::shared_ptr<SearchMemory>& memory, Numbers numbers) {
  const auto reserve_of = [&](const RunOptions& sizes) {
    Reserve reserve = stated(run.reserve);
    reserve.batches = host_batches(sizes, run.kind, run.evaluates);
    return reserve;
  };
  const bool is_estimated = numbers == Numbers::kEstimated;
  const RunOptions options =
      is_estimated
          ? asked
          : with_chosen_micro_batch(run, asked, arena_within(run.budget, reserve_of(asked)), *memory).options;
  const Reserve reserve = reserve_of(options);
  const Bytes arena_budget = arena_within(run.budget, reserve);
  std::vector<RunVariant> variants = variants_of(options);
  // What lies between none and all of what is allowed would change an estimate by little, and takes long.
  if (is_estimated)
    std::erase_if(variants, [](const RunVariant& v) { return !v.forms.empty() && !v.may_be_smallest; });
  OuterSearch search(memory, compile_variants(variants, run.model, run.evaluates),
                     OuterSearch::Prices::kForgetOfLosers);
  const auto change = [&](Bytes arena, double seconds) {
    const Bytes peak = peak_with_arena(arena, reserve);
    return Change{description, peak, seconds, peak <= run.budget};
  };
  if (is_estimated) {
    const BudgetSearch::Outcome found = search.estimate(arena_budget, options.recompute);
    return change(found.arena, found.update_seconds);
  }
  const CompileReport report = search.outcome(arena_budget, options.recompute).report;
  return change(report.arena, report.update_seconds);
}

// The user's options with the planner's micro-batch and place of the update: what stays as it is when one option is changed.
RunOptions base_of(const Prepared& run) {
  RunOptions base = with_micro_batch(run.asked, run.options.per_device_train_batch_size);
  base.update_placement = run.options.update_placement;
  return base;
}

void add_batches_and_lengths(const RunOptions& now,
                             std::vector<std::pair<std::string, RunOptions>>& candidates) {
  const bool inside = now.update_placement == UpdatePlacement::kInBackward;
  const int64_t global = global_batch(now);
  const auto add_batch = [&](int64_t batch) {
    RunOptions other = with_micro_batch(now, batch);
    std::string text = fmt::format("--per_device_train_batch_size {} --gradient_accumulation_steps {}", batch,
                                   other.gradient_accumulation_steps);
    if (inside && other.gradient_accumulation_steps > 1) {
      other.update_placement.reset();
      text += " --update_placement auto";
    }
    text += sums_in_fp32(other);
    candidates.emplace_back(text, other);
  };
  // Without accumulation the update may stand in the backward, and no gradient is held from one micro-step to the next.
  if (now.gradient_accumulation_steps > 1) add_batch(global);
  for (int64_t batch = now.per_device_train_batch_size / 2; batch >= 1; batch /= 2)
    if (global % batch == 0) add_batch(batch);
  for (int64_t length = now.max_length / 2; length >= 64; length /= 2) {
    RunOptions shorter = now;
    shorter.max_length = length;
    candidates.emplace_back(fmt::format("--max_length {}", length), shorter);
  }
}

// What each term holds at most where everything is kept, or where a policy that was named says what is.
std::map<std::string, Bytes> terms_of(const Prepared& run, const RunOptions& options, SearchMemory& memory) {
  CompileOptions compiled = compile_options(options, run.model, run.kind, run.evaluates);
  const auto peaks = changes_gradients(compiled.recompute)
                         ? draft(run.model, compiled, memory.target(), Checks::kNone).report.category_peaks
                         : memory.keep_all(compiled).category_peaks;
  std::map<std::string, Bytes> terms;
  for (size_t category = 0; category < peaks.size(); ++category)
    if (const auto name = category_name(static_cast<Category>(category));
        name != "data" && peaks[category] != Bytes())  // token ids and counters: next to nothing
      terms[std::string(name)] = peaks[category];
  return terms;
}

}  // namespace

Bytes fixed_bytes(const Prepared& run) {
  Bytes state;
  for (const PlanTensor& tensor : run.compiled.plan.tensors)
    if (tensor.storage == "state") state += tensor.shape.bytes(tensor.dtype);
  // The reserve beside an arena that holds the state alone, without batches.
  Reserve reserve = run.reserve;
  reserve.batches = Bytes();
  return peak_with_arena(state, reserve);
}

std::vector<Change> changes_that_help(const Prepared& run) {
  if (run.kind != RunKind::kTrain) return {};
  // What lies outside the arena is too much already.
  Reserve without_batches = run.reserve;
  without_batches.batches = Bytes();
  if (peak_with_arena(Bytes(0), without_batches) > run.budget) return {};
  std::vector<Change> changes;
  bool fits = false;
  const auto memory = std::make_shared<SearchMemory>(run.model, run.backend->target());
  const auto add = [&](const std::string& description, const RunOptions& options) {
    Change change = change_to(run, description, options, memory, Numbers::kOfLayouts);
    fits = fits || change.fits;
    if (change.fits || change.peak < run.summary.peak) changes.push_back(std::move(change));
  };
  const std::vector<Saving> savings = savings_of(run.asked);
  const auto add_savings = [&](std::span<const Saving> some) {
    add(description_of(run.asked, some), with_savings(run.asked, some));
  };
  for (const Saving& saving : savings) add_savings({&saving, 1});
  // Together only where none does alone, and no more of them than it takes.
  for (size_t count = 2; count <= savings.size() && !fits; ++count)
    add_savings(std::span(savings).first(count));
  if (fixed_bytes(run) <= run.budget && !plans_micro_batch(run.asked)) {
    std::vector<std::pair<std::string, RunOptions>> candidates;
    add_batches_and_lengths(run.asked, candidates);
    for (const auto& [description, options] : candidates) add(description, options);
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.fits != b.fits ? a.fits : a.fits ? a.step_seconds < b.step_seconds : a.peak < b.peak;
  });
  return changes;
}

std::vector<PlanSummary::Alternative> alternatives_of(const Prepared& run,
                                                      const std::shared_ptr<SearchMemory>& memory) {
  if (run.kind != RunKind::kTrain) return {};
  const RunOptions base = base_of(run);
  const std::map<std::string, Bytes> now = terms_of(run, run.options, *memory);
  std::vector<PlanSummary::Alternative> rows;
  // `forced`: the run as it is but for that one option, whether or not the planner would take it.
  const auto add = [&](const std::string& option, const RunOptions& asked, const RunOptions& forced) {
    const Change change = change_to(run, option, asked, memory, Numbers::kEstimated);
    PlanSummary::Alternative row{.option = option,
                                 .terms = {},
                                 .peak = change.peak,
                                 .step_seconds = change.step_seconds,
                                 .fits = change.fits};
    std::map<std::string, Bytes> then = terms_of(run, forced, *memory);
    for (const auto& [name, bytes] : now) then.try_emplace(name, Bytes());
    for (const auto& [name, bytes] : then) {
      const auto before = now.find(name);
      const Bytes difference = bytes - (before == now.end() ? Bytes() : before->second);
      if (difference != Bytes()) row.terms.push_back({name, difference});
    }
    rows.push_back(std::move(row));
  };

  if (base.gradient_accumulation_steps == 1 && base.precision != Precision::kF16) {
    const bool inside = run.options.update_placement == UpdatePlacement::kInBackward;
    RunOptions other = base, forced = run.options;
    other.update_placement = forced.update_placement =
        inside ? UpdatePlacement::kAfter : UpdatePlacement::kInBackward;
    add(inside ? "--update_placement after" : "--update_placement in_backward", other, forced);
  }
  if (const int64_t batch = base.per_device_train_batch_size; batch % 2 == 0) {
    RunOptions forced = with_micro_batch(run.options, batch / 2);
    forced.update_placement = UpdatePlacement::kAfter;
    RunOptions other = with_micro_batch(base, batch / 2);
    other.update_placement = UpdatePlacement::kAfter;
    sums_in_fp32(forced);
    const std::string gradients = sums_in_fp32(other);
    add(fmt::format("--per_device_train_batch_size {} --gradient_accumulation_steps {}{}", batch / 2,
                    other.gradient_accumulation_steps, gradients),
        other, forced);
  }
  for (const Saving& saving : savings_of(base)) {
    RunOptions other = base, forced = run.options;
    saving.apply(other);
    if (saving.option == "--update_placement auto" || saving.option == "--recompute optimal")
      continue;  // above, and the policies
    if (saving.allowance) {
      // The variant of the run that makes use of this word alone.
      RunOptions only = run.options;
      only.allow = {*saving.allowance};
      for (const RunVariant& variant : variants_of(only))
        if (variant.forms.contains(*saving.allowance)) forced = variant.options;
      if (*saving.allowance == Allowance::kFp8Activations)
        forced.recompute = {.kind = RecomputePolicy::Kind::kCompress};
    } else {
      saving.apply(forced);
    }
    add(description_of(run.asked, {&saving, 1}), other, forced);
  }
  return rows;
}

}  // namespace snug
