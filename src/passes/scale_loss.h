// passes/scale_loss.h — the gradient of the loss is multiplied by an input of the micro-step
//
// Why:      f16 keeps nothing below 2⁻²⁵, and most gradients of activations are smaller; multiplied by a power of two they
//           lie inside its range (Micikevicius et al. 2018, §3.2). The loss itself stays as it is.
// Requires: `differentiate` has run.
// Ensures:  input `loss_scale` f32(1); every operation that makes the loss's gradient reads it (attribute scaled=1), so that all
//           gradients are loss_scale times as large. Whoever reads gradients of parameters divides by it: update_control does.
// Order:    before `decompose` and `accumulate`, which copy and extend the operands.
// Method:   the operand stands behind inverse_tokens. O(operations).
// See:      passes/test/scale_loss.ir
#pragma once

#include "ir/graph.h"

namespace snug {

// Returns whether there was a gradient of a loss.
bool scale_loss(Graph& graph);

// The input `loss_scale` f32(1), added to `graph`.
TensorId add_loss_scale(Graph& graph);

}  // namespace snug
