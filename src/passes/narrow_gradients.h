// passes/narrow_gradients.h — the gradients of matrices wait for the update in bf16
//
// Why:      2 bytes a parameter instead of 4 from the backward to the update. Costs the 8 bits of each gradient that bf16
//           keeps, and one matrix in f32 at a time while it is rounded. A tied embedding's gradient stays f32 from the head to
//           the end of the backward, for its parts are summed in f32.
// Requires: `differentiate` has run and whatever else gives the micro-step its final operations; no accumulation: sums
//           over micro-steps are f32.
// Ensures:  the result `d.<parameter>` of every trainable parameter with has_narrow_gradient() is bf16, made by
//           narrow_gradient right behind the operation that completes `d.<parameter>.f32`.
// Order:    after `fuse` and `decompose`; before `update_in_backward` and `in_place`.
// Method:   O(operations + parameters).
// See:      passes/test/narrow_gradients.ir · docs/lossy.md
#pragma once

#include "ir/graph.h"

namespace snug {

// Returns whether there was a gradient to narrow.
bool narrow_gradients(Graph& graph);

}  // namespace snug
