// train/fit.h — which plan of a run fits its budget, what that costs, and what to change where none does
#pragma once

#include <string>
#include <vector>

#include "observe/frontier.h"
#include "train/prepare.h"

namespace snug {

// Called by prepare() for a run that trains; does nothing for others. Where the run's policy needs a budget and keeping everything
// exceeds it, replaces `run.compiled` by the plan that the policy finds, or by the smallest where none fits. In every case measures
// `run.outside` and `run.reserve` anew, for seeking grows the process, and makes `run.summary` with what it says of choices: slowdown,
// gap, smallest budget, named policies. Throws as compile() does.
void fit_to_budget(Prepared& run);

// Throws UserError(kDoesNotFit) when the plan's process peak exceeds the budget: the missing bytes, the bytes by category unless
// plan_table() has just shown them, the largest term, the smallest budget that works, and which changes would make it fit.
void require_plan_fits(const Prepared& run, bool table_was_shown = false);
// Throws UserError(kUsage) when the budget exceeds what the control groups or the machine allow, with both numbers.
void require_budget_allowed(const Prepared& run);

// One change of options with what follows from it.
struct Change {
  std::string description;
  Bytes peak;               // of the process
  double step_seconds = 0;  // estimated, of one update
  bool fits = false;
};
// What of recomputation, bf16, the update inside the backward, a smaller batch and a shorter max_length lowers the peak, alone and
// together; fitting ones first, by rising seconds. Batch and length are left out where what lives at every moment exceeds the budget
// already: they are not the knob then.
std::vector<Change> changes_that_help(const Prepared& run);

// What no batch, length or recomputation can lower: the state (weights, masters, moments) and the reserve.
Bytes fixed_bytes(const Prepared& run);

// The run at budgets from the smallest that works to keeping everything, and the named policies.
Frontier frontier_of(const Prepared& run);

}  // namespace snug
