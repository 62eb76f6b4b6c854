// passes/fuse.h — neighbouring operations become one fused operation with the same bits
//
// Why:      linear + gelu → linear_gelu saves reading u once (4·B·T·F bytes in f32); linear + add →
//           linear_add never stores the product before the residual is added (one tensor of B·T·C elements
//           less at that moment).
// Requires: `differentiate` and `recompute` have run, so that the uses of a value are all there.
// Ensures:  fewer operations; a fused operation gives the bits of its plain decomposition. The tensors that
//           remain keep their names.
// Order:    after `recompute`; before `in_place`. Undone by `decompose`.
// Method:   look at each pair of neighbours in execution order, O(operations):
//           linear_add:  the product has no other use (a dropout in between is another use and another
//           neighbour);
//           linear_gelu: the product has another use, that is, the backward keeps it. Where nobody does,
//           gelu works in place on it and needs half the bytes of the fused form.
// See:      passes/test/fuse.ir
#pragma once

#include "ir/graph.h"

namespace snug {

// Returns whether a pair was fused.
bool fuse(Graph& graph);

}  // namespace snug
