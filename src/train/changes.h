// train/changes.h — what other options would make of a run: the way out where it does not fit, and what each one is worth where it does
//
// Every row is the same run with the same data, batch and budget, planned the same way, so that rows can be held against each other.
#pragma once

#include <string>
#include <vector>

#include "compile/search_memory.h"
#include "train/prepare.h"

namespace snug {

// One change of options with what follows from it.
struct Change {
  std::string description;  // as it is written on the command line
  Bytes peak;               // of the process
  double step_seconds = 0;  // estimated, of one update
  bool fits = false;
};
// What of recomputation, bf16, the update inside the backward, the forms of --allow, another micro-batch with the same global batch and
// a shorter max_length lowers the peak, alone or, where none is enough, added up until it is; fitting ones first, by rising seconds,
// of equal ones the more exact first. Batch and length are left out where what lives at every moment exceeds the budget already:
// they are not the knob then. Nothing at all where what lies outside the arena exceeds it.
std::vector<Change> changes_that_help(const Prepared& run);

// What each option that is not in use would change, alone, with micro-batch and place of the update as they were chosen: every term and,
// within the budget, peak and seconds, by the planner's own numbers (no layout). `memory` is of the run's model and target.
std::vector<PlanSummary::Alternative> alternatives_of(const Prepared& run,
                                                      const std::shared_ptr<SearchMemory>& memory);

// What no batch, length or recomputation can lower: the state (weights, masters, moments) and the reserve.
Bytes fixed_bytes(const Prepared& run);

}  // namespace snug
