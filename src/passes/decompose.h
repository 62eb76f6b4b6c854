// passes/decompose.h — every fused operation is replaced by the plain operations that define it
//
// Why:      the plain form is what tests and reports compare with: the same bits (rounding where the
//           decomposition stores a tensor), more memory. The whole logits tensor of head_loss exists only
//           here: B·T·V·4 bytes.
// Requires: nothing.
// Ensures:  no operation with a decomposition in the table is left.
// Order:    after `fuse`, which it undoes; before `in_place`.
// Method:   the table's rule for each such operation, in place, until none is left. O(operations).
// See:      passes/test/decompose.ir
#pragma once

#include "ir/graph.h"

namespace snug {

// Returns whether there was a fused operation.
bool decompose(Graph& graph);

}  // namespace snug
