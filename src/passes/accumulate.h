// passes/accumulate.h — parameter gradients are summed over the repetitions of the micro-step
//
// Why:      with several micro-steps an update, each repetition adds to the gradient of the last. Costs 4
//           bytes a parameter that now live through the whole micro-step; saves the zeroing, because the
//           first repetition overwrites.
// Requires: `differentiate` has run; gradients are results in category gradients.
// Ensures:  every parameter gradient has an `into`. The first operation of each chain reads the carried
//           tensor `d.<parameter>` and has overwrite_first=1; the last one's value, now named
//           `d.<parameter>.next`, shares its storage and is the result.
// Order:    after `differentiate`; before `in_place`. Only where the phase repeats.
// Method:   follow the must-aliases of each gradient back to the operation that starts its chain.
//           O(gradients).
// See:      passes/test/accumulate.ir · docs/operations.md "Accumulate"
#pragma once

#include "ir/graph.h"

namespace snug {

// Returns whether there was a gradient to accumulate.
bool accumulate(Graph& graph);

}  // namespace snug
