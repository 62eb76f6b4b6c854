// passes/chunk_mlp.h — an MLP works on a few rows at a time, so that its hidden values never exist whole
//
// Why:      what lies between the products of an MLP of F features, B·T·F elements (twice that with a gate), is neither held for the
//           backward nor whole in either direction: scratch of `rows` rows takes its place, for the products before the activation once
//           more in the backward. Gradients of weights are then sums over chunks, so this is no exact choice (docs/lossy.md).
// Requires: forward operations alone; no aliases yet.
// Ensures:  products into an activation (gelu, swiglu) and the product behind it that share x, part, block, weight order and bias are one
//           `mlp` with chunk=rows, named by what their names begin with, whose output keeps its name.
//           All other operations stay as they are: an MLP of at most `rows` rows, for it would be one chunk; one whose hidden
//           values somebody else reads, or dropout stands between; one whose products are not alike.
// Order:    after `cast`; before `differentiate`, which gives an `mlp` one `mlp_gradient`. Undone by `decompose`, but for the order of sums.
// Method:   walk the operations; at a product, look back at the makers of its input and of what they read. O(operations).
// Source:   Liu and Abbeel, Blockwise Parallel Transformer (2023), section 3: the feedforward network over blocks of the sequence.
// See:      passes/test/chunk_mlp.ir
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace snug {

// Returns whether any MLP was found. `rows` is at least 1.
bool chunk_mlp(Graph& graph, int64_t rows);

}  // namespace snug
