// train/fit.h — which plan of a run fits its budget, what that costs, and what to change where none does
#pragma once

#include <string>
#include <vector>

#include "compile/search_memory.h"
#include "observe/frontier.h"
#include "train/prepare.h"

namespace snug {

// Called by prepare() for a run that trains; does nothing for others. Of all variants that are allowed (train/variants.h) takes the one
// with the fastest plan that fits, or with the smallest plan where none does: replaces `run.options`, `run.compile_options` and
// `run.compiled`. It is sought in a process of its own, within what `run.reserve` leaves; then the process is measured anew, with the plan in
// it. Makes `run.summary` with what it says of choices: slowdown, gap, smallest budget, named policies, what was chosen and why, and, where
// `question` asks, what other options would change. Throws as compile() does.
void fit_to_budget(Prepared& run, const PlanQuestion& question);

// Where the budget comes from that nobody gave: the allowance, its source and the margin. Empty with --memory.
std::string budget_line(const Prepared& run);

// Of a run whose peak exceeds its budget, for people: the missing bytes, the options that make it fit and the smallest budget that
// works; behind that where the budget comes from, the largest term and, with `lists_terms`, the bytes by category.
std::string refusal(const Prepared& run, bool lists_terms);

// Throws UserError(kDoesNotFit) with the refusal and its terms when the plan's process peak exceeds the budget.
void require_plan_fits(const Prepared& run);
// Throws UserError(kUsage) when the budget exceeds what the control groups or the machine allow, with both numbers.
void require_budget_allowed(const Prepared& run);

// Options with a micro-batch, and whether it has a plan that fits.
struct ChosenBatch {
  RunOptions options;
  bool fits = true;
};
// `options` with the micro-batch of compile/micro_batch.h's rule for an arena of that size, where the planner chooses it; otherwise as
// they are. Of `run`, `evaluates` is read; `memory` is of its model and target.
ChosenBatch with_chosen_micro_batch(const Prepared& run, const RunOptions& options, Bytes arena_budget,
                                    SearchMemory& memory);
// The same with a memory of its own, in a process of its own.
ChosenBatch with_sought_micro_batch(const Prepared& run, const RunOptions& options, Bytes arena_budget,
                                    const PlanQuestion& question);

// The process peak with another arena beside the same reserve.
Bytes peak_with_arena(Bytes arena, Reserve reserve);

// The run at budgets from the smallest that works to keeping everything, and the named policies.
Frontier frontier_of(const Prepared& run);

}  // namespace snug
