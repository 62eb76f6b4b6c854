// passes/differentiate.h — the graph also computes the gradient of its loss for every trainable parameter
//
// Why:      one reverse sweep costs about two forward passes (two products for each of the forward's) and
//           keeps what the gradient rules name: nothing is computed for frozen parameters, nor for
//           activations before the first trainable one.
// Requires: a result named `loss` that stands in f32(1) (f64 in gradient checks); only forward operations.
// Ensures:  results are `loss`, then one gradient `d.<parameter>` per trainable parameter in the order of
//           the parameters, in f32 and of the parameter's shape. Backward operations follow all forward
//           ones. Where an operation and its gradient are one pass over the data (head_loss_gradient), the
//           forward operation is gone.
// Order:    after `cast`, because gradients take their type from the tensors; before `recompute`, `fuse`,
//           `accumulate` and `in_place`, which look at who needs a value in the backward.
// Method:   1. mark every value that depends on a trainable parameter;
//           2. walk the operations in reverse; one that a gradient reaches appends its backward by the
//              table's gradient rule;
//           3. gradients of a value used more than once are summed by `add`, in the order of the sweep
//              (last use first); gradients of a parameter used more than once (tied embedding) go through
//              the accumulator `into` of the next rule. O(uses), apart from the graph's own name checks.
// Source:   Griewank and Walther, Evaluating Derivatives (2008), chapter 3.2: the incremental reverse mode.
// See:      passes/test/differentiate.ir
#pragma once

#include "ir/graph.h"

namespace snug {

// Returns false, and leaves the graph alone, when there is no loss or no trainable parameter that it depends
// on.
bool differentiate(Graph& graph);

}  // namespace snug
